// Command seats is lockstep-scheduler with one more plugin: an example of how to add one
// from another module.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lockstep-sh/lockstep/cmd/scheduler/app"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(Name, New))))
}
