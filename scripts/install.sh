#!/usr/bin/env bash
# Installs the command, its manual pages and completions, and the C library with its header and pkg-config file.
#
#   PREFIX=/usr/local scripts/install.sh
source "$(dirname "$0")/toolchain.sh"
