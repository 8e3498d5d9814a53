// Package crdfilter is the common part of commands that read a CRD from standard input, change it, and write it to
// standard output.
package crdfilter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// Main filters standard input, and ends the process with an error if that fails.
func Main(change Change) {
	if err := Run(os.Stdin, os.Stdout, change); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Change changes a CRD in place: it gets the CRD, its only version, and the schema of that.
type Change func(crd, version, schema map[string]any) error

// Run writes the CRD that it reads, changed. Of times it accepts only those that can be read. It adds a line that
// begins a document.
func Run(in io.Reader, out io.Writer, change Change) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the CRD: %w", err)
	}
	crd := map[string]any{}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return fmt.Errorf("parsing the CRD: %w", err)
	}
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) != 1 {
		return fmt.Errorf("reading the versions: found %d, want 1", len(versions))
	}
	version, _ := versions[0].(map[string]any)
	holder, _ := version["schema"].(map[string]any)
	schema, ok := holder["openAPIV3Schema"].(map[string]any)
	if !ok {
		return errors.New("reading the version: it has no schema")
	}
	if err := change(crd, version, schema); err != nil {
		return err
	}
	Walk(schema, func(schema map[string]any) {
		if schema["format"] == "date-time" {
			schema["pattern"] = DateTime
		}
	})
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

// At returns a part of a schema: properties by their names, and items and additionalProperties as such.
func At(schema map[string]any, path string) (map[string]any, error) {
	for step := range strings.SplitSeq(path, "/") {
		from := schema
		if step != "items" && step != "additionalProperties" {
			from, _ = schema["properties"].(map[string]any)
		}
		next, ok := from[step].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("finding %s in the schema: there is no %s", path, step)
		}
		schema = next
	}
	return schema, nil
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
