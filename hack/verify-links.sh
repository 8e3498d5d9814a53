#!/usr/bin/env bash
# Links in texts lead to files, and to headings, that exist.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources '*.md')

# headings lists the anchors of a text: lower case, spaces as dashes, other signs dropped.
headings() {
  awk '/^```/ { code = !code } !code && /^#+ /' "$1" | sed -E 's/^#+ //' |
    tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
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
    done < <(awk '/^```/ { code = !code } !code' "$file" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^[a-z]+:' || true)
  done
}

check links "correct the link" none broken
