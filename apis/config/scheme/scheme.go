// Package scheme registers the arguments of Lockstep's plugins with the scheme
// that kube-scheduler loads its configuration through. Importing it is enough.
package scheme

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	schedscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/lockstep-sh/lockstep/apis/config"
	configv1 "github.com/lockstep-sh/lockstep/apis/config/v1"
)

func init() {
	utilruntime.Must(config.AddToScheme(schedscheme.Scheme))
	utilruntime.Must(configv1.AddToScheme(schedscheme.Scheme))
}
