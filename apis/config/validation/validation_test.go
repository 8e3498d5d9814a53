package validation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

func texts(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Error())
	}
	return list
}

func TestGangArgs(t *testing.T) {
	const at = "profiles[lockstep-scheduler].pluginConfig[Gang].args."
	for sentence, c := range map[string]struct {
		change func(*config.GangArgs)
		want   []string
	}{
		"all in bounds": {change: func(*config.GangArgs) {}},
		"the least": {change: func(a *config.GangArgs) {
			a.DefaultWaitTime.Duration, a.InitialBackoff.Duration, a.MaxBackoff.Duration, a.ExplanationQPS = 1, 1, 1, 1
		}},
		"the most":               {change: func(a *config.GangArgs) { a.ExplanationQPS = 1000 }},
		"no wait time":           {func(a *config.GangArgs) { a.DefaultWaitTime.Duration = 0 }, []string{at + `defaultWaitTime: Invalid value: "0s": must be greater than 0`}},
		"a negative wait time":   {func(a *config.GangArgs) { a.DefaultWaitTime.Duration = -time.Minute }, []string{at + `defaultWaitTime: Invalid value: "-1m0s": must be greater than 0`}},
		"no backoff":             {func(a *config.GangArgs) { a.InitialBackoff.Duration = 0 }, []string{at + `initialBackoff: Invalid value: "0s": must be greater than 0`}},
		"a backoff that shrinks": {func(a *config.GangArgs) { a.MaxBackoff.Duration = time.Millisecond }, []string{at + `maxBackoff: Invalid value: "1ms": must not be below initialBackoff`}},
		"levels of a topology": {change: func(a *config.GangArgs) {
			a.TopologyLevels = []config.TopologyLevel{{Key: "topology.example.com/block", Name: "SpineLayer"}, {Key: "rack", Name: "rack"}}
		}},
		"a level that is no label key": {
			func(a *config.GangArgs) { a.TopologyLevels = []config.TopologyLevel{{Key: "a b"}} },
			[]string{at + `topologyLevels[0].key: Invalid value: "a b": must be a node label key: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		},
		"a level twice, and a name for two": {
			func(a *config.GangArgs) {
				a.TopologyLevels = []config.TopologyLevel{{Key: "block", Name: "rack"}, {Key: "rack"}, {Key: "row", Name: "block"}}
			},
			[]string{at + `topologyLevels[1].key: Duplicate value: "rack"`, at + `topologyLevels[2].name: Duplicate value: "block"`},
		},
		"too many levels": {
			func(a *config.GangArgs) { a.TopologyLevels = make([]config.TopologyLevel, 9) },
			[]string{at + `topologyLevels: Too many: 9: must have at most 8 items`},
		},
		"a provisioning class": {change: func(a *config.GangArgs) { a.ProvisioningClassName = "best-effort-atomic-scale-up.autoscaling.x-k8s.io" }},
		"a provisioning class that is no name": {
			func(a *config.GangArgs) { a.ProvisioningClassName = "Atomic" },
			[]string{at + `provisioningClassName: Invalid value: "Atomic": must be empty or the name of a provisioning class: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		},
		"no explanations":                     {func(a *config.GangArgs) { a.ExplanationQPS = 0 }, []string{at + `explanationQPS: Invalid value: 0: must be in the range 1 to 1000`}},
		"more explanations than there may be": {func(a *config.GangArgs) { a.ExplanationQPS = 1001 }, []string{at + `explanationQPS: Invalid value: 1001: must be in the range 1 to 1000`}},
		"everything wrong is told at once": {func(a *config.GangArgs) { *a = config.GangArgs{MaxBackoff: metav1.Duration{Duration: -1}} }, []string{
			at + `defaultWaitTime: Invalid value: "0s": must be greater than 0`,
			at + `initialBackoff: Invalid value: "0s": must be greater than 0`,
			at + `maxBackoff: Invalid value: "-1ns": must not be below initialBackoff`,
			at + `explanationQPS: Invalid value: 0: must be in the range 1 to 1000`,
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			second := metav1.Duration{Duration: time.Second}
			args := &config.GangArgs{DefaultWaitTime: second, InitialBackoff: second, MaxBackoff: second, ExplanationQPS: 10}
			c.change(args)
			if diff := cmp.Diff(c.want, texts(GangArgs(Path("lockstep-scheduler", "Gang"), args))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBoundedBinderArgs(t *testing.T) {
	const bad = "profiles[p].pluginConfig[BoundedBinder].args.maxInFlight: Invalid value: "
	for limit, want := range map[int32][]string{
		1: nil, 10000: nil,
		0:     {bad + "0: must be in the range 1 to 10000"},
		-1:    {bad + "-1: must be in the range 1 to 10000"},
		10001: {bad + "10001: must be in the range 1 to 10000"},
	} {
		got := texts(BoundedBinderArgs(Path("p", "BoundedBinder"), &config.BoundedBinderArgs{MaxInFlight: limit}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("errors of %d (-want +got):\n%s", limit, diff)
		}
	}
}

func TestGangPreemptionArgs(t *testing.T) {
	const at = "profiles[p].pluginConfig[GangPreemption].args."
	for sentence, c := range map[string]struct {
		change func(*config.GangPreemptionArgs)
		want   []string
	}{
		"all in bounds": {change: func(*config.GangPreemptionArgs) {}},
		"the most": {change: func(a *config.GangPreemptionArgs) {
			a.MinRuntime.Duration, a.EvictionCooldown.Duration, a.SearchTimeout.Duration = 1000*time.Hour, 24*time.Hour, time.Minute
		}},
		"no domains":                {func(a *config.GangPreemptionArgs) { a.MaxDomains = 0 }, []string{at + "maxDomains: Invalid value: 0: must be in the range 1 to 1000"}},
		"fewer nodes than at first": {func(a *config.GangPreemptionArgs) { a.MinCandidateNodesAbsolute, a.MaxCandidateNodesAbsolute = 10, 9 }, []string{at + "maxCandidateNodesAbsolute: Invalid value: 9: must be 0, for all nodes, or not below minCandidateNodesAbsolute"}},
		"negative times": {func(a *config.GangPreemptionArgs) {
			a.BrokenGrace.Duration, a.MinRuntime.Duration, a.EvictionCooldown.Duration = -1, -time.Second, -time.Minute
		}, []string{
			at + `brokenGrace: Invalid value: "-1ns": must not be negative`,
			at + `minRuntime: Invalid value: "-1s": must not be negative`,
			at + `evictionCooldown: Invalid value: "-1m0s": must not be negative`,
		}},
		"a cool-down beyond what is remembered": {func(a *config.GangPreemptionArgs) { a.EvictionCooldown.Duration = 25 * time.Hour }, []string{at + `evictionCooldown: Invalid value: "25h0m0s": must not be more than 24h0m0s`}},
		"a search without time":                 {func(a *config.GangPreemptionArgs) { a.SearchTimeout.Duration = 0 }, []string{at + `searchTimeout: Invalid value: "0s": must be in the range 10ms to 1m0s`}},
		"no way to evict a gang":                {func(a *config.GangPreemptionArgs) { a.EvictBy = "suspend" }, []string{at + `evictBy: Unsupported value: "suspend": supported values: "Delete", "Suspend"`}},
		"a search that stops the scheduler":     {func(a *config.GangPreemptionArgs) { a.SearchTimeout.Duration = 2 * time.Minute }, []string{at + `searchTimeout: Invalid value: "2m0s": must be in the range 10ms to 1m0s`}},
	} {
		t.Run(sentence, func(t *testing.T) {
			args := &config.GangPreemptionArgs{
				Workers: 1, MaxDomains: 1, SearchTimeout: metav1.Duration{Duration: time.Second}, EvictBy: v1alpha1.EvictBySuspend,
			}
			c.change(args)
			if diff := cmp.Diff(c.want, texts(GangPreemptionArgs(Path("p", "GangPreemption"), args))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFairShareArgs(t *testing.T) {
	const at = "profiles[p].pluginConfig[FairShare].args."
	all := func(model string) *metav1.LabelSelector {
		if model == "" {
			return &metav1.LabelSelector{}
		}
		return &metav1.LabelSelector{MatchLabels: map[string]string{"model": model}}
	}
	tier := func(policies ...config.Policy) []config.PolicyTier { return []config.PolicyTier{{Policies: policies}} }
	for sentence, c := range map[string]struct {
		change func(*config.FairShareArgs)
		want   []string
	}{
		"all in bounds":              {change: func(*config.FairShareArgs) {}},
		"the most":                   {change: func(a *config.FairShareArgs) { a.Window, a.MaxBypass, a.ExplanationQPS = 10000, 1000000, 1000 }},
		"the same in two tiers":      {change: func(a *config.FairShareArgs) { a.Tiers = append(a.Tiers, a.Tiers...) }},
		"no window":                  {func(a *config.FairShareArgs) { a.Window = 0 }, []string{at + "window: Invalid value: 0: must be in the range 1 to 10000"}},
		"a negative bypass":          {func(a *config.FairShareArgs) { a.MaxBypass = -1 }, []string{at + "maxBypass: Invalid value: -1: must be in the range 0 to 1000000"}},
		"no hold":                    {func(a *config.FairShareArgs) { a.BypassHold.Duration = 0 }, []string{at + `bypassHold: Invalid value: "0s": must be greater than 0`}},
		"no time for evicted gangs":  {change: func(a *config.FairShareArgs) { a.EvictedHold.Duration = 0 }},
		"less than no time for them": {func(a *config.FairShareArgs) { a.EvictedHold.Duration = -time.Second }, []string{at + `evictedHold: Invalid value: "-1s": must be in the range 0s to 24h0m0s`}},
		"too long for them":          {func(a *config.FairShareArgs) { a.EvictedHold.Duration = 25 * time.Hour }, []string{at + `evictedHold: Invalid value: "25h0m0s": must be in the range 0s to 24h0m0s`}},
		"no explanations":            {func(a *config.FairShareArgs) { a.ExplanationQPS = 0 }, []string{at + "explanationQPS: Invalid value: 0: must be in the range 1 to 1000"}},
		"no tiers":                   {func(a *config.FairShareArgs) { a.Tiers = []config.PolicyTier{} }, []string{at + "tiers: Required value: name the policies, or leave the field out for the default ones"}},
		"an empty tier":              {func(a *config.FairShareArgs) { a.Tiers = tier() }, []string{at + "tiers[0].policies: Required value: a tier without policies answers nothing; leave it out"}},
		"a policy that there is not": {func(a *config.FairShareArgs) { a.Tiers = tier(config.Policy{Name: "random"}) }, []string{at + `tiers[0].policies[0].name: Unsupported value: "random": supported values: "capacity", "conformance", "drf", "gang", "priority", "proportion"`}},
		"a policy twice":             {func(a *config.FairShareArgs) { a.Tiers = tier(config.Policy{Name: "drf"}, config.Policy{Name: "drf"}) }, []string{at + `tiers[0].policies[1].name: Duplicate value: "drf"`}},
		"a question it cannot answer": {func(a *config.FairShareArgs) {
			a.Tiers = tier(config.Policy{Name: "drf", Answers: []config.PolicyQuestion{"JobOrder", "Overused"}})
		}, []string{at + `tiers[0].policies[0].answers[1]: Unsupported value: "Overused": supported values: "JobOrder", "Preemptable"`}},
		"pools, the last of which has all that is left": {change: func(a *config.FairShareArgs) {
			a.Pools = []config.Pool{{Name: "a", NodeSelector: all("a"), Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}, {Key: "k", Operator: v1.TolerationOpGt, Value: "5"}}}, {Name: "rest", NodeSelector: all("")}}
		}},
		"names of pools": {func(a *config.FairShareArgs) {
			a.Pools = []config.Pool{{NodeSelector: all("a")}, {Name: "default", NodeSelector: all("a")}, {Name: "B", NodeSelector: all("a")}, {Name: "c", NodeSelector: all("a")}, {Name: "c", NodeSelector: all("a")}}
		}, []string{
			at + "pools[0].name: Required value: name the pool; queues say by it what they have there",
			at + `pools[1].name: Invalid value: "default": is the pool of the nodes that no other matches; for tolerations of its own end the list with a pool that has nodeSelector: {}`,
			at + `pools[2].name: Invalid value: "B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			at + `pools[4].name: Duplicate value: "c"`,
		}},
		"resources of classes": {change: func(a *config.FairShareArgs) {
			a.DeviceClasses = map[string]v1.ResourceName{
				"gpu.nvidia.com": "nvidia.com/gpu", "mig.nvidia.com": "nvidia.com/gpu", "net": "deviceclass.resource.kubernetes.io/other",
			}
		}},
		"classes that cannot be, and resources that count otherwise": {func(a *config.FairShareArgs) {
			a.DeviceClasses = map[string]v1.ResourceName{
				"A": "nvidia.com/gpu", "b": "", "c": "cpu", "d": "requests.nvidia.com/gpu", "e": "kubernetes.io/gpu", "f": "nvidia.com/gpu@large",
			}
		}, []string{
			at + `deviceClasses[A]: Invalid value: "A": is not the name of a DeviceClass: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			at + `deviceClasses[b]: Required value: name an extended resource, such as nvidia.com/gpu`,
			at + `deviceClasses[c]: Invalid value: "cpu": must be the name of an extended resource, such as nvidia.com/gpu`,
			at + `deviceClasses[d]: Invalid value: "requests.nvidia.com/gpu": must be the name of an extended resource, such as nvidia.com/gpu`,
			at + `deviceClasses[e]: Invalid value: "kubernetes.io/gpu": must be the name of an extended resource, such as nvidia.com/gpu`,
			at + `deviceClasses[f]: Invalid value: "nvidia.com/gpu@large": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		}},
		"selectors of pools": {func(a *config.FairShareArgs) {
			a.Pools = []config.Pool{{Name: "a"}, {Name: "b", NodeSelector: all("")}, {Name: "c", NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Is"}}}}}
		}, []string{
			at + "pools[0].nodeSelector: Required value: say which nodes are in the pool; {} matches all",
			at + `pools[1].nodeSelector: Invalid value: "{}": matches all nodes, and leaves none to the pools that follow; put it last`,
			at + `pools[2].nodeSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
		}},
		"tolerations of pools": {func(a *config.FairShareArgs) {
			a.Pools = []config.Pool{{Name: "a", NodeSelector: all("a"), Tolerations: []v1.Toleration{
				{}, {Key: "k", Operator: v1.TolerationOpExists, Value: "v"}, {Key: "k", Operator: "Is", Effect: "Never"}, {Key: "k", Operator: v1.TolerationOpLt, Value: "v"},
				{Key: "k k"}, {Key: "k", Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
			}}}
		}, []string{
			at + `pools[0].tolerations[0].operator: Invalid value: "": must be Exists where key is empty, which then matches all taints`,
			at + `pools[0].tolerations[1].value: Invalid value: "v": must be empty where operator is Exists`,
			at + `pools[0].tolerations[2].operator: Unsupported value: "Is": supported values: "Equal", "Exists", "Gt", "Lt"`,
			at + `pools[0].tolerations[2].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
			at + `pools[0].tolerations[3].value: Invalid value: "v": must be a whole number where operator is Gt or Lt`,
			at + `pools[0].tolerations[4].key: Invalid value: "k k": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			at + `pools[0].tolerations[5].tolerationSeconds: Invalid value: 300: must not be set: a node that pods leave after a time is not there to be shared`,
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			args := &config.FairShareArgs{Window: 1, BypassHold: metav1.Duration{Duration: 1}, ExplanationQPS: 1, Tiers: tier(config.Policy{Name: "priority"})}
			c.change(args)
			if diff := cmp.Diff(c.want, texts(FairShareArgs(Path("p", "FairShare"), args))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
