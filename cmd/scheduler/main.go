// Command lockstep-scheduler is kube-scheduler with Lockstep's plugins in it. It
// takes all flags of kube-scheduler; without --config it runs the profile
// lockstep-scheduler with all plugins on.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/lockstep-sh/lockstep/cmd/scheduler/app"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand()))
}
