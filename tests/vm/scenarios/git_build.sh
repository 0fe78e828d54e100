# deadline: 240 300
# A developer's day: git init, commit, clone, build with make, gc, fsck, all on the mount.
. /host/vm/lib.sh

serve_and_mount
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
count=$(quick_or_full 10 60)
git init -q -b main project
cd project
{
  echo '#include <stdio.h>'
  for i in $(seq "$count"); do echo "int part$i(void);"; done
  echo 'int main(void) { int sum = 0;'
  for i in $(seq "$count"); do echo "sum += part$i();"; done
  echo 'printf("%d\n", sum); return 0; }'
} >main.c
for i in $(seq "$count"); do echo "int part$i(void) { return $i; }" >"part$i.c"; done
printf 'program: main.o %s\n\t$(CC) -o $@ $^\n' "$(for i in $(seq "$count"); do printf 'part%d.o ' "$i"; done)" >Makefile
git add -A
git commit -qm first
for i in 1 2 3; do echo "/* $i */" >>main.c; git commit -qam "change $i"; done
git clone -q . ../clone
cd ../clone
make -s -j2
expect_equal 'what the built program prints' "$(./program)" $((count * (count + 1) / 2))
expect_equal 'what the clone has beside the build' "$(git status --porcelain | grep -vE '\.o$|program$' | wc -l)" 0
git gc -q
git fsck --strict
expect_equal 'commits' "$(git log --oneline | wc -l)" 4
make -s -q || fail 'make wants to build again: times went backwards'
