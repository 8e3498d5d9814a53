// Command podgroupcrd reads the community's PodGroup CRD from standard input and writes it, with Lockstep's printer
// columns and an additive status.conditions, to standard output. The rest of the community's schema stays: its objects
// and clients remain valid, but for quantities and times that cannot be read, or not at once. A single such object
// would keep the scheduler and the controller from reading any PodGroup.
package main

import (
	_ "embed"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/hack/crdfilter"
)

//go:embed conditions.yaml
var conditions []byte

func main() { crdfilter.Main(extend) }

// extend changes the only version of the CRD in place.
func extend(crd map[string]any) error {
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	if err != nil {
		return fmt.Errorf("reading the versions: %w", err)
	}
	if len(versions) != 1 {
		return fmt.Errorf("reading the versions: found %d, want 1", len(versions))
	}
	version, ok := versions[0].(map[string]any)
	if !ok {
		return errors.New("reading the versions: the version is no object")
	}
	schema := map[string]any{}
	if err := yaml.Unmarshal(conditions, &schema); err != nil {
		return fmt.Errorf("parsing the schema of conditions: %w", err)
	}
	path := []string{"schema", "openAPIV3Schema", "properties", "status", "properties"}
	if _, found, err := unstructured.NestedMap(version, path...); err != nil || !found {
		return fmt.Errorf("finding the schema of the status: found %t, %w", found, err)
	}
	if _, found, _ := unstructured.NestedMap(version, append(path, "conditions")...); found {
		return errors.New("adding status.conditions: the community's schema has it now")
	}
	if err := unstructured.SetNestedMap(version, schema, append(path, "conditions")...); err != nil {
		return fmt.Errorf("adding status.conditions: %w", err)
	}
	version["additionalPrinterColumns"] = columns()
	root, _, err := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema")
	if err != nil {
		return fmt.Errorf("finding the schema: %w", err)
	}
	crdfilter.Walk(root, bound)
	return unstructured.SetNestedSlice(crd, versions, "spec", "versions")
}

// quantity is what resource.ParseQuantity reads. What is below 0 is reported where it is read.
const quantity = `^[+-]?` + crdfilter.Magnitude

// bound makes a schema accept no quantity or time that cannot be read.
func bound(schema map[string]any) {
	switch {
	case crdfilter.IsQuantity(schema):
		schema["pattern"] = quantity
	case schema["format"] == "date-time":
		schema["pattern"] = crdfilter.DateTime
	}
}

// columns returns those of the design, then, with -o wide, the rest of what the community prints.
func columns() []any {
	column := func(name, kind, path, description string) map[string]any {
		return map[string]any{"name": name, "type": kind, "jsonPath": path, "description": description}
	}
	wide := func(c map[string]any) map[string]any {
		c["priority"] = int64(1)
		return c
	}
	return []any{
		column("Phase", "string", ".status.phase", "Current phase of the gang."),
		column("Ready", "integer", ".status.running", "Members that run."),
		column("Min", "integer", ".spec.minMember", "Members that must be held or bound together."),
		column("Mode", "string", `.metadata.annotations['gang\.scheduling\.koordinator\.sh/mode']`,
			"Strict or NonStrict; empty means Strict."),
		column("Queue", "string", `.metadata.labels['scheduling\.lockstep\.dev/queue']`,
			"Queue of the gang; empty means that of the namespace."),
		column("Reason", "string", `.status.conditions[?(@.type=="Scheduled")].reason`,
			"Why the gang is, or is not, scheduled."),
		wide(column("Succeeded", "integer", ".status.succeeded", "Members that have succeeded.")),
		wide(column("Failed", "integer", ".status.failed", "Members that have failed.")),
		column("Age", "date", ".metadata.creationTimestamp", "Time since the gang was created."),
	}
}
