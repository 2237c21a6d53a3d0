"""`python -m brace_diag_cli`."""

import sys

from brace_diag_cli.main import main

sys.exit(main())
