package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/schedulersetup"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// made is what the command would run.
type made struct {
	config   schedconfig.KubeSchedulerConfiguration
	host     string // of the API server
	profiles map[string]framework.Framework
}

// setUp sets a scheduler up as the command does, from flags. Nothing is run.
func setUp(t *testing.T, flags ...string) (*made, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	opts := options.NewOptions()
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range opts.Flags.FlagSets {
		all.AddFlagSet(set)
	}
	must.Succeed(t, all.Parse(append([]string{"--secure-port=0"}, flags...)))
	config, sched, err := setup(ctx, opts, nil, schedulersetup.NewSet(), func(err error) { t.Error(err) })
	if err != nil {
		return nil, err
	}
	return &made{config.ComponentConfig, config.KubeConfig.Host, sched.Profiles}, nil
}

func mustSetUp(t *testing.T, flags ...string) *made {
	t.Helper()
	m, err := setUp(t, flags...)
	must.Succeed(t, err)
	return m
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// apiServer starts an API server that has nothing. It returns its address and a
// kubeconfig for it.
func apiServer(t *testing.T) (host, kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	cfg.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	cfg.CurrentContext = "c"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*cfg, kubeconfig))
	return server.URL, kubeconfig
}

func configuration(text string) string {
	return "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\n" + text
}

// withPlugins returns a profile with Lockstep's plugins.
func withPlugins(name string) string {
	return `- schedulerName: ` + name + `
  plugins:
    multiPoint:
      enabled: [{name: Gang}, {name: BoundedBinder}]
      disabled: [{name: DefaultBinder}]
    queueSort:
      enabled: [{name: GangQueueSort}]
      disabled: [{name: PrioritySort}]
`
}

func names(plugins []schedconfig.Plugin) []string {
	var list []string
	for _, plugin := range plugins {
		list = append(list, plugin.Name)
	}
	return list
}

func TestBuiltInConfiguration(t *testing.T) {
	_, kubeconfig := apiServer(t)
	ours := mustSetUp(t, "--kubeconfig", kubeconfig)
	stock := mustSetUp(t, "--kubeconfig", kubeconfig, "--config", write(t, "config.yaml", configuration("")))
	if len(ours.profiles) != 1 || ours.profiles["lockstep-scheduler"] == nil {
		t.Fatalf("profiles %v, want lockstep-scheduler alone", ours.profiles)
	}
	enabled := ours.profiles["lockstep-scheduler"].ListPlugins()
	theirs := stock.profiles["default-scheduler"].ListPlugins()
	// What comes first matters; what kube-scheduler has by default stays behind it.
	front := func(name string, rest []schedconfig.Plugin) []string { return append([]string{name}, names(rest)...) }
	for sentence, c := range map[string]struct{ got, want []string }{
		"the queue is ordered by gangs":                              {names(enabled.QueueSort.Enabled), []string{"GangQueueSort"}},
		"gangs gate pods after kube-scheduler's own gates":           {names(enabled.PreEnqueue.Enabled), append(names(theirs.PreEnqueue.Enabled), "Gang")},
		"gangs are planned before their members are looked at":       {names(enabled.PreFilter.Enabled), front("Gang", theirs.PreFilter.Enabled)},
		"every profile keeps what is promised":                       {names(theirs.Filter.Enabled)[len(theirs.Filter.Enabled)-2:], []string{"Reservation", "HeldCapacity"}},
		"and binds reserve pods before any binder":                   {names(theirs.Bind.Enabled), []string{"Reservation", "DefaultBinder"}},
		"nobody preempts for a single member":                        {names(enabled.PostFilter.Enabled), []string{"Gang", "GangPreemption", "DynamicResources"}},
		"filters are kube-scheduler's, the gang's, and what is held": {names(enabled.Filter.Enabled), slices.Insert(names(theirs.Filter.Enabled), len(theirs.Filter.Enabled)-2, "Gang")},
		"held members wait before anything is bound":                 {names(enabled.Bind.Enabled), []string{"Gang", "Reservation", "BoundedBinder"}},
		"members wait at Permit where they have to":                  {names(enabled.Permit.Enabled), append(names(theirs.Permit.Enabled), "Gang")},
		"a gang notes what is reserved after it is":                  {names(enabled.Reserve.Enabled), slices.Insert(names(theirs.Reserve.Enabled), len(theirs.Reserve.Enabled)-1, "Gang")},
		"what is done before binding is as it was":                   {names(enabled.PreBind.Enabled), names(theirs.PreBind.Enabled)},
		"scores of the gang come first, and the others are all on":   {names(enabled.Score.Enabled), front("Gang", theirs.Score.Enabled)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
	if got := ours.config.LeaderElection; !got.LeaderElect || got.ResourceName != "lockstep-scheduler" {
		t.Errorf("leader election %+v, want a lease of our own", got)
	}
	if got := ours.config.ClientConnection; got.QPS < 1000 || got.Burst < 1000 {
		t.Errorf("client connection %+v holds the scheduler down", got)
	}
}

func TestFlagsAndConfiguration(t *testing.T) {
	one, first := apiServer(t)
	two, second := apiServer(t)
	type facts struct {
		Host     string
		Profiles []string
		Lease    string
	}
	named := func(kubeconfig string) string { return "clientConnection: {kubeconfig: " + kubeconfig + "}\n" }
	for sentence, c := range map[string]struct {
		flags  []string
		config string
		want   facts
	}{
		"without --config the built-in configuration runs, against --kubeconfig": {
			flags: []string{"--kubeconfig", first}, want: facts{one, []string{"lockstep-scheduler"}, "lockstep-scheduler"},
		},
		"with --config --kubeconfig is honoured where the file names none": {
			flags: []string{"--kubeconfig", first}, config: "profiles:\n" + withPlugins("ours"), want: facts{one, []string{"ours"}, "kube-scheduler"},
		},
		"what the file names wins": {
			flags: []string{"--kubeconfig", first}, config: named(second) + "profiles:\n" + withPlugins("ours"), want: facts{two, []string{"ours"}, "kube-scheduler"},
		},
		"the file alone is enough": {
			config: named(second) + "profiles:\n" + withPlugins("ours"), want: facts{two, []string{"ours"}, "kube-scheduler"},
		},
		"several profiles share one process": {
			flags: []string{"--kubeconfig", first}, config: "profiles:\n" + withPlugins("default-scheduler") + withPlugins("lockstep-scheduler"),
			want: facts{one, []string{"default-scheduler", "lockstep-scheduler"}, "kube-scheduler"},
		},
		"a file without profiles is kube-scheduler's own default": {
			flags: []string{"--kubeconfig", first}, config: "parallelism: 4\n", want: facts{one, []string{"default-scheduler"}, "kube-scheduler"},
		},
		"arguments of what the program enables, and of what kube-scheduler has but the profile does not": {
			flags: []string{"--kubeconfig", first}, config: "profiles:\n- schedulerName: ours\n" +
				"  plugins: {multiPoint: {enabled: [{name: Gang}], disabled: [{name: NodeResourcesBalancedAllocation}]}, postFilter: {enabled: [{name: GangPreemption}]}}\n" +
				"  pluginConfig: [{name: Reservation, args: {preempt: true}}, {name: BoundedBinder, args: {maxInFlight: 7}}, {name: GangPreemption, args: {minRuntime: 1m}}, " +
				"{name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu, weight: 1}]}}]\n",
			want: facts{one, []string{"ours"}, "kube-scheduler"},
		},
		"gangs with their order enabled by hand": {
			flags: []string{"--kubeconfig", first}, config: "profiles:\n- schedulerName: ours\n" +
				"  plugins: {multiPoint: {enabled: [{name: Gang}]}, queueSort: {enabled: [{name: GangQueueSort}]}}\n",
			want: facts{one, []string{"ours"}, "kube-scheduler"},
		},
		"leader election flags hold without a file": {
			flags: []string{"--kubeconfig", first, "--leader-elect-resource-name=mine"}, want: facts{one, []string{"lockstep-scheduler"}, "mine"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			flags := c.flags
			if c.config != "" {
				flags = append(flags, "--config", write(t, "config.yaml", configuration(c.config)))
			}
			m := mustSetUp(t, flags...)
			got := facts{Host: m.host, Lease: m.config.LeaderElection.ResourceName}
			for _, profile := range m.config.Profiles {
				got.Profiles = append(got.Profiles, profile.SchedulerName)
				if m.profiles[profile.SchedulerName] == nil {
					t.Errorf("profile %s was not built", profile.SchedulerName)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("what would run (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBadConfiguration: what cannot be used stops the start, and the error names
// the profile, the plugin, the field and the value.
func TestBadConfiguration(t *testing.T) {
	_, kubeconfig := apiServer(t)
	args := func(plugin, fields string) string {
		return "profiles:\n" + withPlugins("other") + withPlugins("ours") + "  pluginConfig:\n  - name: " + plugin + "\n    args: {" + fields + "}\n"
	}
	for sentence, c := range map[string]struct {
		config string
		want   []string
	}{
		"a value out of bounds":         {args("Gang", "maxBackoff: 1ms"), []string{"profiles[ours].pluginConfig[Gang].args.maxBackoff", `"1ms"`, "must not be below initialBackoff"}},
		"a value out of bounds, binder": {args("BoundedBinder", "maxInFlight: 0"), []string{"profiles[ours].pluginConfig[BoundedBinder].args.maxInFlight", "0", "1 to 10000"}},
		"a field that does not exist":   {args("Gang", "maxBackof: 1s"), []string{".profiles[1].pluginConfig[0]", "Gang", `unknown field "maxBackof"`}},
		"a value of the wrong type":     {args("Gang", "explanationQPS: few"), []string{".profiles[1].pluginConfig[0]", "GangArgs.explanationQPS"}},
		"a duration that is none":       {args("Gang", "maxBackoff: soon"), []string{"profiles[ours].pluginConfig[Gang].args.maxBackoff", `"soon"`, "invalid duration"}},
		"two of them":                   {args("Gang", "maxBackoff: soon, defaultWaitTime: 5"), []string{"args.maxBackoff", `"soon"`, "args.defaultWaitTime", "5"}},
		"gangs that nobody holds": {
			"profiles:\n" + withPlugins("ours") + "    permit: {disabled: [{name: Gang}]}\n    reserve: {disabled: [{name: Gang}]}\n",
			[]string{"profiles[ours].plugins.permit: Required value: Gang has to be enabled here too: add permit: {enabled: [{name: Gang}]}",
				"profiles[ours].plugins.reserve", "add reserve: {enabled: [{name: Gang}]}"},
		},
		"gangs at a single extension point": {
			"profiles:\n- schedulerName: ours\n  plugins: {preFilter: {enabled: [{name: Gang}]}}\n  pluginConfig: [{name: Gang, args: {defaultWaitTime: 1m}}]\n",
			[]string{"checking profiles: profiles[ours].plugins.multiPoint: Required value: enable Gang at multiPoint, not point by point: add multiPoint: {enabled: [{name: Gang}]}"},
		},
		"evictions for places that nobody holds": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: GangPreemption}]}}\n",
			[]string{"profiles[ours].plugins.postFilter", "GangPreemption needs Gang: add multiPoint: {enabled: [{name: Gang}]}"},
		},
		"evictions that come before gangs": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: Gang}, {name: GangPreemption}]}, postFilter: {enabled: [{name: GangPreemption}, {name: Gang}]}}\n",
			[]string{"profiles[ours].plugins.postFilter", "Gang has to come before it: write postFilter: {enabled: [{name: Gang}, {name: GangPreemption}]}"},
		},
		"queues that come before gangs": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: Gang}, {name: FairShare}]}, preEnqueue: {enabled: [{name: FairShare}, {name: Gang}]}}\n",
			[]string{"profiles[ours].plugins.preEnqueue", "Gang has to come before it: write preEnqueue: {enabled: [{name: Gang}, {name: FairShare}]}"},
		},
		"promises that nobody keeps": {
			"profiles:\n" + withPlugins("ours") + "    filter: {disabled: [{name: HeldCapacity}]}\n" + withPlugins("other"),
			[]string{"profiles[ours].plugins: Required value: HeldCapacity is disabled", "disable it nowhere",
				"add filter: {enabled: [{name: HeldCapacity}]} and preFilter: {enabled: [{name: Gang}, {name: HeldCapacity}]}"},
		},
		"promises that nobody keeps, to queues": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: FairShare}], disabled: [{name: HeldCapacity}]}}\n",
			[]string{"profiles[ours].plugins: Required value: HeldCapacity is disabled", "and preFilter: {enabled: [{name: HeldCapacity}]}"},
		},
		"places of Reservations that a binder does not know": {
			"profiles:\n" + withPlugins("ours") + "    bind: {enabled: [{name: BoundedBinder}, {name: Reservation}]}\n",
			[]string{"profiles[ours].plugins.bind", "begin with bind: {enabled: [{name: Gang}, {name: Reservation}]}"},
		},
		"promises of which it is not known whose they are": {
			"profiles:\n" + withPlugins("ours") + "    preFilter: {enabled: [{name: HeldCapacity}, {name: Gang}]}\n",
			[]string{"profiles[ours].plugins.preFilter", "HeldCapacity",
				"Gang has to come before it: write preFilter: {enabled: [{name: Gang}, {name: HeldCapacity}]}"},
		},
		"arguments for a plugin that takes none": {
			"profiles:\n" + withPlugins("ours") + "  pluginConfig: [{name: GangQueueSort, args: {byAge: true}}]\n", []string{"ours", "GangQueueSort", "takes none"},
		},
		"arguments for another one": {
			"profiles:\n" + withPlugins("ours") + "- {schedulerName: other, plugins: {multiPoint: {enabled: [{name: GPUShare}]}, queueSort: {enabled: [{name: GangQueueSort}], disabled: [{name: PrioritySort}]}}, pluginConfig: [{name: GPUShare, args: {cards: 2}}]}\n", []string{"GPUShare", "takes none"},
		},
		"arguments for a plugin that does not exist": {
			args("FairSahre", "maxBypass: 2"), []string{`profiles[ours].pluginConfig[0].name: Invalid value: "FairSahre": there is no such plugin: did you mean FairShare?`},
		},
		"arguments for a plugin that is like no other": {
			args("Yunikorn", ""), []string{`profiles[ours].pluginConfig[0].name: Invalid value: "Yunikorn"`, "there are BoundedBinder, FairShare, GPUShare, Gang, GangPreemption,"},
		},
		"arguments that no plugin of the profile reads": {
			args("FairShare", "maxBypass: 2"), []string{`profiles[ours].pluginConfig[0].name: Invalid value: "FairShare": it is not enabled`, "add multiPoint: {enabled: [{name: FairShare}]}"},
		},
		"arguments of evictions in a profile that has none": {
			"profiles:\n- {schedulerName: ours, pluginConfig: [{name: GangPreemption, args: {minRuntime: 1m}}, {name: BoundedBinder, args: {}}]}\n",
			[]string{"add multiPoint: {enabled: [{name: Gang}, {name: GangPreemption}]}", "add bind: {enabled: [{name: BoundedBinder}], disabled: [{name: DefaultBinder}]}"},
		},
		"a queue that nothing sorts": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: Gang}]}, queueSort: {disabled: [{name: PrioritySort}]}}\n",
			[]string{`profiles[ours].plugins.queueSort: Invalid value: "": exactly one plugin has to sort the queue`, "write queueSort: {enabled: [{name: GangQueueSort}]}"},
		},
		"a queue that nothing sorts, since all is disabled": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: DefaultBinder}], disabled: [{name: '*'}]}}\n",
			[]string{"write queueSort: {enabled: [{name: PrioritySort}]}"},
		},
		"a queue that two plugins sort": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: GangQueueSort}]}}\n",
			[]string{`"PrioritySort, GangQueueSort": exactly one`, "write queueSort: {enabled: [{name: GangQueueSort}], disabled: [{name: PrioritySort}]}"},
		},
		"a queue that two plugins sort, one at its own point": {
			"profiles:\n- schedulerName: ours\n  plugins: {queueSort: {enabled: [{name: GangQueueSort}]}}\n",
			[]string{"write queueSort: {enabled: [{name: GangQueueSort}], disabled: [{name: PrioritySort}]}"},
		},
		"profiles that order the queue differently": {
			"profiles:\n" + withPlugins("ours") + "- schedulerName: default-scheduler\n", []string{"profiles[1].plugins.queueSort", "must be the same"},
		},
		"a plugin that does not exist": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: Gangs}]}}\n",
			[]string{`profiles[ours].plugins.multiPoint: Invalid value: "Gangs": there is no such plugin: did you mean Gang?`},
		},
		"a plugin in small letters, and its arguments": {
			"profiles:\n- schedulerName: ours\n  plugins: {multiPoint: {enabled: [{name: gang}]}, preEnqueue: {enabled: [{name: Fairshare}]}}\n  pluginConfig: [{name: Gang, args: {defaultWaitTime: 1m}}]\n",
			[]string{`checking profiles: [profiles[ours].plugins.multiPoint: Invalid value: "gang": there is no such plugin: did you mean Gang?, profiles[ours].plugins.preEnqueue: Invalid value: "Fairshare": there is no such plugin: did you mean FairShare?]`},
		},
		"a field of the configuration that does not exist": {"profile: []\n", []string{`unknown field "profile"`}},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := setUp(t, "--kubeconfig", kubeconfig, "--config", write(t, "config.yaml", configuration(c.config)))
			if err == nil {
				t.Fatal("it was set up")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %s", err, want)
				}
			}
		})
	}
}
