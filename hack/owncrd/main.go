// Command owncrd reads a CRD of Lockstep's, as controller-gen writes it, from standard input and writes to standard
// output the one that is installed.
//
// Clients in Go can then read what the API server accepts. By the patterns of the API machinery it takes quantities,
// numbers and times that are then refused where they are read, and a single such object would keep the scheduler and
// the controller from reading any.
//
// The CRD of Reservations differs in two more ways. The descriptions below spec.template are gone: they are those of
// every pod, which kubectl explain pod shows, and would be most of a CRD of 650 kB. Without them, kubectl apply can
// keep its copy of it in an annotation, which holds 256 KiB.
//
// Selectors may be only so long. Without that, rules about them would cost the API server more than it allows.
package main

import (
	"math"

	"github.com/lockstep-sh/lockstep/hack/crdfilter"
)

// quantity is what resource.ParseQuantity reads, not below 0.
const quantity = `^[+]?` + crdfilter.Magnitude

func main() { crdfilter.Main(rewrite) }

// rewrite changes the CRD in place.
func rewrite(crd, _, schema map[string]any) error {
	crdfilter.Walk(schema, tighten)
	spec, _ := crd["spec"].(map[string]any)
	if names, _ := spec["names"].(map[string]any); names["kind"] != "Reservation" {
		return nil
	}
	if err := limit(schema); err != nil {
		return err
	}
	template, err := crdfilter.At(schema, "spec/template")
	if err != nil {
		return err
	}
	properties, _ := template["properties"].(map[string]any)
	for _, property := range properties {
		crdfilter.Walk(property, func(schema map[string]any) { delete(schema, "description") })
	}
	return nil
}

// limits are how long the values that rules look at may be, by their place in the schema.
var limits = []struct {
	path string
	name string
	most int
}{
	{"spec/template/metadata/namespace", "maxLength", 63},
	{"spec/owners/items/labelSelector/matchLabels", "maxProperties", 16},
	{"spec/owners/items/labelSelector/matchLabels/additionalProperties", "maxLength", 63},
	{"spec/owners/items/labelSelector/matchExpressions", "maxItems", 16},
	{"spec/owners/items/labelSelector/matchExpressions/items/key", "maxLength", 317},
	{"spec/owners/items/labelSelector/matchExpressions/items/operator", "maxLength", 12},
	{"spec/owners/items/labelSelector/matchExpressions/items/values", "maxItems", 32},
	{"spec/owners/items/labelSelector/matchExpressions/items/values/items", "maxLength", 63},
}

// limit sets the limits. Without them, rules about what is limited cost the API server more than it allows.
func limit(root map[string]any) error {
	for _, l := range limits {
		schema, err := crdfilter.At(root, l.path)
		if err != nil {
			return err
		}
		schema[l.name] = l.most
	}
	return nil
}

// tighten makes a schema accept no more than can be read.
func tighten(schema map[string]any) {
	switch {
	case crdfilter.IsQuantity(schema):
		schema["pattern"], schema["minimum"] = quantity, 0
	case schema["x-kubernetes-int-or-string"] == true:
		schema["minimum"], schema["maximum"] = math.MinInt32, math.MaxInt32
	}
}
