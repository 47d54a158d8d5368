#!/bin/sh
# A pool over three directories that survives losing any one of them: two commands.
#
#   examples/quickstart.sh [DIR]      DIR is made when it is not there; give three disks of your own in real life
set -eu
dir=${1:-$(mktemp -d)}
mkdir -p "$dir/disk1" "$dir/disk2" "$dir/disk3" "$dir/pool"

poolctl create quickstart "$dir/disk1" "$dir/disk2" "$dir/disk3" --resiliency parity --mountpoint "$dir/pool"
poolfs mount "$dir/pool"

echo "The pool is mounted at $dir/pool. poolfs umount $dir/pool unmounts it; poolctl destroy quickstart removes it."
