package main

import (
	"fmt"
	"slices"
	"testing"
)

func TestHouse(t *testing.T) {
	h := house{}
	for i := range maxFolders {
		name := fmt.Sprintf("p%02d", i)
		h.add(pkg{ImportPath: module + "pkg/" + name, Name: name})
	}
	h.add(pkg{ImportPath: module + "pkg/p00/below", Name: "below"})
	h.add(pkg{ImportPath: module + "cmd/one", Name: "main"})
	h.add(pkg{ImportPath: module + "cmd/two", Name: "main"})
	if got := h.check(); len(got) > 0 {
		t.Errorf("a house in order: got %q", got)
	}
	h.add(pkg{ImportPath: module + "plugins/below", Name: "below"})
	h.add(pkg{ImportPath: module + "pkg/more/below/it", Name: "it"})
	want := []string{
		"packages have one name, below: " + module + "pkg/p00/below, " + module + "plugins/below",
		module + "pkg has 13 folders with packages, want at most 12",
	}
	if got := h.check(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
