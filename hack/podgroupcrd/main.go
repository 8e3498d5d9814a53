// Command podgroupcrd reads the community's PodGroup CRD from standard input and writes it, with Lockstep's printer
// columns and an additive status.conditions, to standard output. The rest of the community's schema stays: its objects
// and clients remain valid, but for quantities and times that cannot be read, or not at once. A single such object
// would keep the scheduler and the controller from reading any PodGroup.
package main

import (
	_ "embed"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/hack/crdfilter"
)

//go:embed conditions.yaml
var conditions []byte

func main() { crdfilter.Main(extend) }

// quantity is what resource.ParseQuantity reads. What is below 0 is reported where it is read.
const quantity = `^[+-]?` + crdfilter.Magnitude

// extend changes the CRD in place.
func extend(_, version, schema map[string]any) error {
	added := map[string]any{}
	if err := yaml.Unmarshal(conditions, &added); err != nil {
		return fmt.Errorf("parsing the schema of conditions: %w", err)
	}
	status, err := crdfilter.At(schema, "status")
	if err != nil {
		return err
	}
	properties, ok := status["properties"].(map[string]any)
	if !ok || properties["conditions"] != nil {
		return errors.New("adding status.conditions: the community's schema has it now, or has no status")
	}
	properties["conditions"] = added
	version["additionalPrinterColumns"] = columns()
	crdfilter.Walk(schema, func(schema map[string]any) {
		if crdfilter.IsQuantity(schema) {
			schema["pattern"] = quantity
		}
	})
	return nil
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
