package main

import (
	"strings"
	"testing"
)

// TestHint: what is to be done next names the cluster, where that is not the usual one.
func TestHint(t *testing.T) {
	for name, want := range map[string][]string{
		"lockstep": {"make run  ", "make down  "},
		"mine":     {"make run NAME=mine  ", "make down NAME=mine  "},
	} {
		text := hint("/clusters/"+name+"/kubeconfig.yaml", name)
		for _, command := range want {
			if !strings.Contains(text, command) {
				t.Errorf("for cluster %s, %q is not in:\n%s", name, command, text)
			}
		}
	}
}
