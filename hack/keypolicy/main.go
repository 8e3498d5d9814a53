// Command keypolicy writes the ValidatingAdmissionPolicies in manifests/keys to standard output. They refuse what
// pkg/rules/keys says has no effect, or cannot be used, when a user applies it.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

const header = "# Written by hack/keypolicy from the table in pkg/rules/keys: make generate.\n"

func main() {
	fmt.Print(header)
	separator := ""
	for _, c := range carriers {
		for _, object := range []map[string]any{c.policy(), c.binding()} {
			text, err := yaml.Marshal(object)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Printf("%s%s", separator, text)
			separator = "---\n"
		}
	}
}
