package schedulersetup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// set returns an extension point with enabled plugins; a name with a - before it is disabled there.
func set(names ...string) schedconfig.PluginSet {
	var s schedconfig.PluginSet
	for _, name := range names {
		if name[0] == '-' {
			s.Disabled = append(s.Disabled, schedconfig.Plugin{Name: name[1:]})
		} else {
			s.Enabled = append(s.Enabled, schedconfig.Plugin{Name: name})
		}
	}
	return s
}

// listNames is the reverse of set.
func listNames(s schedconfig.PluginSet) []string {
	var list []string
	for _, p := range s.Enabled {
		list = append(list, p.Name)
	}
	for _, p := range s.Disabled {
		list = append(list, "-"+p.Name)
	}
	return list
}

// TestComplete: a profile that has Gang gets what it leaves out, and keeps what it says.
func TestComplete(t *testing.T) {
	stock := []string{"PrioritySort", "DefaultPreemption", "DefaultBinder"} // what kube-scheduler's defaults add
	with := func(names ...string) schedconfig.PluginSet {
		return set(append(append([]string{}, stock...), names...)...)
	}
	type points struct{ QueueSort, PreFilter, PostFilter, Score, Bind []string }
	whole := points{
		[]string{"GangQueueSort", "-PrioritySort"}, []string{"Gang"}, []string{"Gang", "GangPreemption", "-DefaultPreemption"},
		[]string{"Gang"}, []string{"Gang", "Reservation", "BoundedBinder", "-DefaultBinder"},
	}
	for sentence, c := range map[string]struct {
		plugins schedconfig.Plugins
		want    points
	}{
		"enabling them at multiPoint is enough": {schedconfig.Plugins{MultiPoint: with("Gang", "GangPreemption", "FairShare")}, whole},
		"in any order":                          {schedconfig.Plugins{MultiPoint: with("FairShare", "GangPreemption", "Gang")}, whole},
		"what says all of it stays as it is": {schedconfig.Plugins{
			MultiPoint: with("Gang", "GangPreemption"), QueueSort: set("GangQueueSort", "-PrioritySort"), PreFilter: set("Gang"),
			PostFilter: set("Gang", "GangPreemption", "-DefaultPreemption"), Score: set("Gang"), Bind: set("Gang", "BoundedBinder", "-DefaultBinder"),
		}, whole},
		"their order by hand is enough, too": {schedconfig.Plugins{
			MultiPoint: with("Gang", "GangPreemption"), QueueSort: set("GangQueueSort"),
		}, whole},
		"gangs that evict nobody leave single pods their preemption": {schedconfig.Plugins{MultiPoint: with("Gang")}, points{
			whole.QueueSort, whole.PreFilter, []string{"Gang"}, whole.Score, whole.Bind,
		}},
		"an order by hand is not repaired": {schedconfig.Plugins{
			MultiPoint: with("Gang", "GangPreemption"), PreFilter: set("NodeAffinity", "Gang"), PostFilter: set("GangPreemption", "Gang"),
		}, points{
			whole.QueueSort, []string{"NodeAffinity", "Gang"}, []string{"GangPreemption", "Gang", "-DefaultPreemption"}, whole.Score, whole.Bind,
		}},
		"who names a binder keeps it": {schedconfig.Plugins{MultiPoint: with("Gang", "GangPreemption"), Bind: set("DefaultBinder")}, points{
			whole.QueueSort, whole.PreFilter, whole.PostFilter, whole.Score, []string{"Gang", "Reservation", "DefaultBinder"},
		}},
		"a binder at multiPoint counts, too": {schedconfig.Plugins{MultiPoint: with("Gang", "GangPreemption", "BoundedBinder", "-DefaultBinder")}, points{
			whole.QueueSort, whole.PreFilter, whole.PostFilter, whole.Score, []string{"Gang", "Reservation"},
		}},
		"what a point names stands where it is, and the rest behind it": {schedconfig.Plugins{
			MultiPoint: with("Gang", "GangPreemption"), PostFilter: set("Gang", "-DefaultPreemption"), Bind: set("Mine"),
		}, points{whole.QueueSort, whole.PreFilter, whole.PostFilter, whole.Score, []string{"Gang", "Reservation", "Mine"}}},
		"where all is disabled, nothing is added": {schedconfig.Plugins{
			MultiPoint: with("Gang", "GangPreemption"), PostFilter: set("Gang", "-*"), Score: set("-*"),
		}, points{whole.QueueSort, whole.PreFilter, []string{"Gang", "-*"}, []string{"-*"}, whole.Bind}},
		"a profile without gangs beside one that has them gets only their order": {schedconfig.Plugins{MultiPoint: with()}, points{
			QueueSort: whole.QueueSort, Bind: []string{"Reservation"},
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			gangs := schedconfig.Plugins{MultiPoint: with("Gang")}
			Complete([]schedconfig.KubeSchedulerProfile{{Plugins: &c.plugins}, {Plugins: &gangs}})
			p := c.plugins
			got := points{listNames(p.QueueSort), listNames(p.PreFilter), listNames(p.PostFilter), listNames(p.Score), listNames(p.Bind)}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the profile (-want +got):\n%s", diff)
			}
			if at(p.MultiPoint, "FairShare") >= 0 && at(p.MultiPoint, "FairShare") < at(p.MultiPoint, "Gang") {
				t.Errorf("FairShare comes before Gang: %v", listNames(p.MultiPoint))
			}
			for _, name := range []string{"Reservation", "HeldCapacity"} {
				if at(p.MultiPoint, name) < 0 {
					t.Errorf("%s is not enabled", name)
				}
			}
		})
	}
}

// TestCompleteLeavesStockProfiles: where nothing of the process has gangs, the order is kube-scheduler's.
func TestCompleteLeavesStockProfiles(t *testing.T) {
	p := schedconfig.Plugins{MultiPoint: set("PrioritySort", "DefaultBinder")}
	Complete([]schedconfig.KubeSchedulerProfile{{Plugins: &p}})
	if len(p.QueueSort.Enabled)+len(p.QueueSort.Disabled)+len(p.PreFilter.Enabled) > 0 {
		t.Errorf("it was changed: %+v", p)
	}
}
