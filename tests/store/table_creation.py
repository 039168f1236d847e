"""Program that creates the tables of a database, or migrates them; tests kill it meanwhile."""

import sys
from pathlib import Path

from schedd.store import Store, schema_version
from schedd.store.database import Database
from tests.store.table_creation_cache import forget_table_statements


def main(url: str, what: str, *options: str) -> None:
    """Do it between the lines ``begun`` and ``done``."""
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    if what == "make":
        forget_table_statements()
        Store.open(url).close()
    else:
        schema_version.scripts = lambda: Path(options[0])
        Database(url).migrate()
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
