"""The programs that run. Each has a name, makes its input once, and runs under a store; what it gives must be the same under each.

`prepare(folder, megabytes)` makes the input. `run(limited)` runs the program by `limited.start` or `limited.output`, and gives a text that
tells its whole result, and figures of its own.
"""

from . import matrices, redis, sort, sqlite, touch

ALL = {
    program.name: program
    for program in (
        sort.Sort(),
        sqlite.Sqlite(),
        matrices.Product(),
        matrices.Product(of_files=True),
        redis.Redis(),
        redis.Redis(saves=True),
        touch.Touch(),
    )
}
