#!/bin/bash
# bench/peers_kernels.sh FILE NAME... - functions of a CUDA file of a peer, without what else the
# file needs: each from its template line, if there is one before it, to the first line "}".
set -u
file=$1
shift
for name in "$@"; do
    awk -v name="$name" '
        !inside && /^template/ { head = $0; next }
        !inside && /^__(global|device)__/ && index($0, " " name "(") {
            inside = found = 1
            print head
        }
        !inside && !/^ / { head = "" }
        inside { print }
        inside && /^}/ { inside = 0 }
        END { exit !found }' "$file" || { echo "peers_kernels: no $name in $file" >&2; exit 1; }
done
