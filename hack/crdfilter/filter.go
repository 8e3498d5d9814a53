// Package crdfilter is the common part of commands that read a CRD from standard input, change it, and write it to
// standard output.
package crdfilter

import (
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// Main filters standard input, and ends the process with an error if that fails.
func Main(change func(crd map[string]any) error) {
	if err := Run(os.Stdin, os.Stdout, change); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Run writes the CRD that it reads, changed in place. The only other thing that it adds is a line that begins a
// document.
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

// DateTime is the pattern of what time.Parse reads as RFC 3339; the format requires that an hour has 60 minutes.
const DateTime = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`

// Magnitude is the pattern of a quantity after its sign. resource.ParseQuantity reads all that it takes, and at once:
// the exponent is a number of two digits at most.
const Magnitude = `([0-9]{1,32}([.][0-9]{0,32})?|[.][0-9]{1,32})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`

// IsQuantity reports whether a schema is that of a quantity.
func IsQuantity(schema map[string]any) bool {
	pattern, _ := schema["pattern"].(string)
	return schema["x-kubernetes-int-or-string"] == true && strings.Contains(pattern, "KMGTPE")
}

// Walk visits a schema and those below it.
func Walk(schema any, visit func(schema map[string]any)) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	visit(s)
	Walk(s["items"], visit)
	Walk(s["additionalProperties"], visit)
	properties, _ := s["properties"].(map[string]any)
	for _, property := range properties {
		Walk(property, visit)
	}
}
