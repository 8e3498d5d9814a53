// Package crdfilter is the common part of commands that read a CRD from standard input, change it, and write it to standard
// output.
package crdfilter

import (
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

// Main filters standard input, and ends the process with an error if that fails.
func Main(change func(crd map[string]any) error) {
	if err := Run(os.Stdin, os.Stdout, change); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Run writes the CRD that it reads, changed in place. The only other thing that it adds is a line that begins a document.
func Run(in io.Reader, out io.Writer, change func(crd map[string]any) error) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the CRD: %w", err)
	}
	crd := map[string]any{}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return fmt.Errorf("parsing the CRD: %w", err)
	}
	if err := change(crd); err != nil {
		return err
	}
	if data, err = yaml.Marshal(crd); err != nil {
		return fmt.Errorf("encoding the CRD: %w", err)
	}
	if _, err := fmt.Fprintf(out, "---\n%s", data); err != nil {
		return fmt.Errorf("writing the CRD: %w", err)
	}
	return nil
}
