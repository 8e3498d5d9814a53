package schedulersetup

import (
	"strings"
	"testing"

	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// listed is a profile of which only the enabled plugins matter.
type listed struct {
	framework.Framework
	plugins *schedconfig.Plugins
}

func (l listed) ProfileName() string               { return "some" }
func (l listed) ListPlugins() *schedconfig.Plugins { return l.plugins }

// TestOversold: pods of a profile without gangs are kept out of what other profiles promise, or its user gets a
// warning.
func TestOversold(t *testing.T) {
	at := func(name string) schedconfig.PluginSet {
		return schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: name}}}
	}
	plain := listed{plugins: &schedconfig.Plugins{}}
	keeps := listed{plugins: &schedconfig.Plugins{PreFilter: at("HeldCapacity"), Filter: at("HeldCapacity")}}
	half := listed{plugins: &schedconfig.Plugins{Filter: at("HeldCapacity")}} // never gets the pod
	for sentence, c := range map[string]struct {
		profile  listed
		promised bool
		doubtful bool
	}{
		"nobody promises anything":       {profile: plain},
		"another profile does":           {profile: plain, promised: true, doubtful: true},
		"and this one keeps it":          {profile: keeps, promised: true},
		"and this one keeps half of it":  {profile: half, promised: true, doubtful: true},
		"one keeps what nobody promises": {profile: keeps},
	} {
		t.Run(sentence, func(t *testing.T) {
			if errs := check(c.profile); len(errs) > 0 {
				t.Errorf("it would do harm: %v", errs)
			}
			list := warnings(c.profile, c.promised)
			if got := len(list) == 1 && strings.Contains(list[0], "HeldCapacity is disabled"); got != c.doubtful {
				t.Errorf("doubts %q, want some: %t", list, c.doubtful)
			}
		})
	}
}
