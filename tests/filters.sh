#!/bin/bash
# filters.sh: filters.py with a Python that has NumPy, PYTHON or the first of the usual names.
# Ends with "N passed, N failed, N skipped".
cd "$(dirname "$0")/.." || exit 2
for python in ${PYTHON:-python3 python}; do
  "$python" -c 'import numpy' 2> /dev/null && exec "$python" tests/filters.py "$@"
done
echo "skipped filters: no Python with NumPy"
echo "0 passed, 0 failed, 1 skipped"
