# make help says what there is. Everything is done by cargo and the scripts in scripts/.
.POSIX:
PREFIX = /usr/local
SECONDS = 60
ROWS = bench/far/target/rows
BUILD = yes

.PHONY: all build demo test check sanitize setup install uninstall fmt lint bench bench-peers bench-far fuzz doc clean help

all: build

help:
	@echo 'make demo               set up, build, run a parallel program beside threads and over two hosts, check its results'
	@echo 'make test               set up, run every test and check'
	@echo 'make check              in minutes: format, lints, unit tests'
	@echo 'make sanitize           run the tests of machine/ under AddressSanitizer (not part of make test)'
	@echo 'make setup              install what this computer lacks (as root, or with sudo)'
	@echo 'make build              the commands, the programs and the C library, optimised, in target/release'
	@echo 'make install PREFIX=DIR the commands, their manual, the C library, examples; DIR is /usr/local unless given'
	@echo 'make uninstall PREFIX=DIR removes them again'
	@echo 'make fmt                format the code'
	@echo 'make lint               check format and lints'
	@echo 'make bench              run every bench; make bench NAME=lookup runs one'
	@echo 'make bench-peers        mapwire beside UCX, Open MPI and iceoryx2, turn by turn'
	@echo 'make bench-far          far memory beside swap space, on real programs (as root); ROWS=DIR gets the rows'
	@echo 'make fuzz SECONDS=60    fuzz the parsers and the engines, so long for each target'
	@echo 'make doc                the documentation of the Rust interface, in target/doc'
	@echo 'make clean              remove what was built'

build:
	@scripts/setup.sh
	scripts/with-rust cargo build --release --locked --workspace

demo:
	@scripts/demo.sh

test:
	@scripts/test.sh

sanitize:
	@scripts/test.sh sanitize

check:
	@scripts/test.sh format lint unit

setup:
	@scripts/setup.sh

install:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' BUILD='$(BUILD)' scripts/install.sh

uninstall:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh --uninstall

fmt:
	scripts/with-rust cargo fmt --all
	scripts/with-rust cargo fmt --manifest-path fuzz/Cargo.toml

lint:
	@scripts/test.sh format lint

bench:
	@NAME='$(NAME)' scripts/bench.sh

bench-peers:
	@bench/peers/run.sh

bench-far:
	@bench/far/run.sh '$(ROWS)'

fuzz:
	scripts/with-rust fuzz/run.sh $(SECONDS)

doc:
	scripts/with-rust cargo doc --workspace --lib --no-deps --locked

clean:
	scripts/with-rust cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts bench/peers/target bench/far/target
