"""Run ``accelerate launch``; if the training fails, end with its exit code and without a traceback of the launcher."""

import logging
import sys
from subprocess import CalledProcessError

from accelerate.commands.launch import main
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

if __name__ == "__main__":
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the training prints why it fails
    try:
        main()
    except CalledProcessError as error:
        sys.exit(error.returncode)
    except ChildFailedError as error:
        sys.exit(next(iter(error.failures.values())).exitcode)
