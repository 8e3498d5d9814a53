#!/usr/bin/env bash
# Links in texts lead to files, and to headings, that exist, and so do paths in `code`; and links lead from README.md to
# every text in docs/.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources '*.md')

# headings lists the anchors of a text: lower case, spaces as dashes, other signs dropped.
headings() {
  awk '/^```/ { code = !code } !code && /^#+ /' "$1" | sed -E 's/^#+ //' |
    tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# links lists what a text links to, but for what is elsewhere.
links() {
  awk '/^```/ { code = !code } !code' "$1" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^[a-z]+:' || true
}

broken() {
  local file target path anchor
  for file in "${files[@]}"; do
    while read -r target; do
      path=${target%%#*} anchor=
      [[ $target == *#* ]] && anchor=${target#*#}
      path=$([[ -z $path ]] && echo "$file" || echo "$(dirname "$file")/$path")
      if [[ ! -e $path ]]; then
        echo "$file: $target: no such file"
      elif [[ -n $anchor ]] && ! headings "$path" | grep -qxF -- "$anchor"; then
        echo "$file: $target: no such heading"
      fi
    done < <(links "$file")
  done
}

# absent lists the paths of this repository that texts name in code, and that do not exist. Words in capitals stand for names.
absent() {
  local name
  grep -noE '`(apis|cmd|hack|manifests|pkg|plugins|test)/[A-Za-z0-9_./-]+`' "${files[@]}" | grep -vE '[A-Z]{4}' | tr -d '`' |
    while IFS= read -r name; do
      [[ -e ${name##*:} ]] || echo "$name"
    done
}

# orphans lists the texts in docs/ that a reader who begins at README.md does not come to.
orphans() {
  local -A reached=([README.md]=1)
  local todo=(README.md) file target path
  while ((${#todo[@]})); do
    file=${todo[0]} todo=("${todo[@]:1}")
    while read -r target; do
      path=$(realpath -m --relative-to=. "$(dirname "$file")/${target%%#*}")
      if [[ $path == *.md && -f $path && -z ${reached[$path]:-} ]]; then
        reached[$path]=1
        todo+=("$path")
      fi
    done < <(links "$file")
  done
  for file in "${files[@]}"; do
    if [[ $file == docs/*.md && -z ${reached[$file]:-} ]]; then echo "$file: no link leads to it from README.md"; fi
  done
}

check links "correct the link" none broken
check paths "correct the path" none absent
check orphans "link it from README.md, or from a text that has a link" none orphans
