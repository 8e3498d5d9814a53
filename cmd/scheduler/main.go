// Command lockstep-scheduler is kube-scheduler with Lockstep's plugins in it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "github.com/lockstep-sh/lockstep/apis/config/scheme"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand()))
}
