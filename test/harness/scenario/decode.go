package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load reads and checks a scenario file.
func Load(file string) (*Scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a scenario: %w", err)
	}
	s, err := Parse(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Base(file), err)
	}
	return s, nil
}

// Parse reads and checks a scenario. A field that the form does not have is an error that names its
// path, and so is a reference to something that the scenario does not define.
func Parse(name string, data []byte) (*Scenario, error) {
	s := &Scenario{Name: name}
	if err := decodeStrictly(data, s); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// decodeStrictly decodes YAML or JSON; unknown and double fields are errors.
func decodeStrictly(data []byte, into any) error {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return fmt.Errorf("decoding YAML: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(asJSON, into)
	if err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	return errors.Join(strict...)
}
