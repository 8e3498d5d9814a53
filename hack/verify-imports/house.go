package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// maxFolders is how many folders with packages stand side by side: as many as a reader takes in at a glance.
const maxFolders = 12

// house is the folders with packages: those in each, and the packages of each name.
type house struct {
	folders, names map[string][]string
}

func (h *house) add(p pkg) {
	if h.folders == nil {
		h.folders, h.names = map[string][]string{}, map[string][]string{}
	}
	if p.Name != "main" {
		h.names[p.Name] = append(h.names[p.Name], p.ImportPath)
	}
	for folder := p.ImportPath; strings.HasPrefix(folder, module); folder = path.Dir(folder) {
		if above := path.Dir(folder); !slices.Contains(h.folders[above], folder) {
			h.folders[above] = append(h.folders[above], folder)
		}
	}
}

// check returns which names are taken twice, and which folders have too many.
func (h *house) check() []string {
	var violations []string
	for _, name := range slices.Sorted(maps.Keys(h.names)) {
		if same := h.names[name]; len(same) > 1 {
			violations = append(violations, fmt.Sprintf("packages have one name, %s: %s", name, strings.Join(same, ", ")))
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(h.folders)) {
		if n := len(h.folders[folder]); n > maxFolders {
			violations = append(violations, fmt.Sprintf("%s has %d folders with packages, want at most %d", folder, n, maxFolders))
		}
	}
	return violations
}
