# deadline: 300 900
# A real tree with links, modes, owners and times: unpacked with tar, copied with cp and rsync, each time compared.
. /host/vm/lib.sh

tree=$(quick_or_full /usr/include/linux/netfilter /usr/include/linux /usr/lib/python3)
same_tree() { # A B
  local difference
  difference=$(rsync -aHni --checksum --delete "$1/" "$2/")
  [ -z "$difference" ] || fail "trees differ: $(head -n 1 <<<"$difference")"
}
serve_and_mount
mkdir unpacked
tar -C "$tree" -cf - . | tar -C unpacked -xpf -
drop_caches
same_tree "$tree" unpacked
same_tree "$tree" $EXPORT/unpacked
cp -a unpacked copied
same_tree unpacked copied
rsync -aH copied/ synced/
same_tree "$tree" synced
tar -cf tree.tar copied
tar -df tree.tar
rm -r unpacked copied synced tree.tar
expect_equal 'names left' "$(ls -A $EXPORT)" ''
