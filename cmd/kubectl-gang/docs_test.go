package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/whatif"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCommandsOfAgents: the commands for assistants exist, with their flags and as many arguments as they take.
func TestCommandsOfAgents(t *testing.T) {
	n := 0
	for line := range strings.Lines(readDoc(t, "agents.md")) {
		text, isCommand := strings.CutPrefix(strings.TrimSpace(line), "kubectl gang ")
		if !isCommand {
			continue
		}
		n++
		root := newCommand(access.New(genericiooptions.NewTestIOStreamsDiscard()))
		cmd, args, err := root.Find(strings.Fields(text))
		if err == nil && cmd == root {
			t.Errorf("kubectl gang %s: there is no such command", text)
			continue
		}
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("kubectl gang %s: %v", text, err)
		}
	}
	if n < 8 {
		t.Errorf("%d commands were found", n)
	}
}

// TestFields: docs list the fields of what is printed as data.
func TestFields(t *testing.T) {
	doc := readDoc(t, "kubectl-gang.md")
	for row, value := range map[string]any{
		"`explain` | `GangExplanation`": explain.Report{}, "one of `cases` | ": explain.Case{}, "`placement`, `search` | ": decisions.Decision{},
		"one of `fits` | ": decisions.Fit{}, "`list` | `GangList`": view.Gang{}, "`queues` | `QueueList`": view.Queue{},
		"one of `resources` | ": view.QueueResource{}, "`whatif` | `WhatIf`": whatif.Report{},
	} {
		_, after, found := strings.Cut(doc, "| "+row)
		if !found {
			t.Errorf("docs do not have the fields of %s", row)
			continue
		}
		line, _, _ := strings.Cut(strings.TrimLeft(after, " |"), "\n")
		told := map[string]bool{}
		for _, name := range regexp.MustCompile("`([a-zA-Z]+)`").FindAllStringSubmatch(line, -1) {
			told[name[1]] = true
		}
		if diff := cmp.Diff(fieldsOf(value), slices.Sorted(maps.Keys(told))); diff != "" {
			t.Errorf("fields of %s (-are +docs):\n%s", row, diff)
		}
	}
}

func fieldsOf(value any) (names []string) {
	of := reflect.TypeOf(value)
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
