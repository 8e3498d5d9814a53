package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licensesFile has the licences of all that the binaries are made of.
const licensesFile = "LICENSES"

// licenses writes the file, after the binaries.
func (r *release) licenses(ctx context.Context) error {
	boms, err := filepath.Glob(filepath.Join(r.out, "*", "*", "*"+bomSuffix))
	if err != nil || len(boms) == 0 {
		return errors.Join(fmt.Errorf("listing the binaries: %d found", len(boms)), err)
	}
	linked := map[string]bool{}
	for _, bom := range boms {
		info, err := buildinfo.ReadFile(strings.TrimSuffix(bom, bomSuffix))
		if err != nil {
			return fmt.Errorf("reading which modules a binary is made of: %w", err)
		}
		for _, module := range info.Deps {
			linked[module.Path] = true
		}
	}
	text, err := r.licensesOf(ctx, slices.Sorted(maps.Keys(linked)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, licensesFile), text, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", licensesFile, err)
	}
	return nil
}

// licensesOf returns the licences of Lockstep, of Go and of modules: each text once, below the names of all that have
// it.
func (r *release) licensesOf(ctx context.Context, modules []string) ([]byte, error) {
	goroot, err := r.command(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	listed, err := r.command(ctx, nil, "go", append([]string{"list", "-m", "-f",
		`{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{"\t"}}{{.Dir}}`}, modules...)...)
	if err != nil {
		return nil, err
	}
	lines := []string{"Lockstep\t" + r.root, "Go and its standard library\t" + strings.TrimSpace(string(goroot))}
	lines = append(lines, strings.Split(strings.TrimSpace(string(listed)), "\n")...)
	var texts []string // in order of the first that has it
	owners := map[string][]string{}
	for _, line := range lines {
		owner, dir, _ := strings.Cut(line, "\t")
		found, err := licensesIn(dir)
		if err != nil {
			return nil, fmt.Errorf("reading the licence of %s: %w", owner, err)
		}
		for _, text := range found {
			if owners[text] == nil {
				texts = append(texts, text)
			}
			owners[text] = append(owners[text], owner)
		}
	}
	var out bytes.Buffer
	for _, text := range texts {
		fmt.Fprintf(&out, "%s\n%s\n\n%s\n\n", strings.Repeat("=", 80), strings.Join(owners[text], "\n"), text)
	}
	return out.Bytes(), nil
}

var (
	licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	noticeName  = regexp.MustCompile(`(?i)^(notice|patents)`)
)

// licensesIn returns the licences and notices at the top of a module. A module without a licence is an error.
func licensesIn(dir string) (texts []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	licensed := false
	for _, e := range entries {
		isLicense := licenseName.MatchString(e.Name())
		if !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".go" || !isLicense && !noticeName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		licensed = licensed || isLicense
		texts = append(texts, strings.TrimSpace(string(text)))
	}
	if !licensed {
		return nil, fmt.Errorf("there is none in %s", dir)
	}
	return texts, nil
}
