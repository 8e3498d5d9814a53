package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/controllers/queuestatus"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func write(t *testing.T, profiles string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n" + profiles
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestQueues: the controller goes by what the scheduler's configuration says of queues.
func TestQueues(t *testing.T) {
	const with = "  plugins: {multiPoint: {enabled: [{name: Gang}, {name: FairShare}]}}\n"
	flags := queuestatus.Options{SchedulerNames: []string{"by-flag"}, Policies: []string{"proportion"}, EvictedHold: config.DefaultEvictedHold}
	for sentence, c := range map[string]struct {
		profiles string // without: no file
		changed  string
		want     queuestatus.Options
		wrong    string
	}{
		"without a file the flags": {want: flags},
		"one without the plugin":   {profiles: "- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: Gang}]}}\n", want: flags},
		"the default policies":     {profiles: "- schedulerName: a\n" + with, want: queuestatus.Options{SchedulerNames: []string{"a"}, Policies: []string{"proportion", "capacity"}, EvictedHold: config.DefaultEvictedHold}},
		"all that it says": {
			profiles: "- schedulerName: a\n- schedulerName: b\n" + with + "  pluginConfig: [{name: FairShare, args: {evictedHold: 1h, tiers: [{policies: [{name: capacity}]}], deviceClasses: {gpu.example.com: example.com/gpu}, pools: [{name: big, nodeSelector: {matchLabels: {size: big}}}]}}]\n",
			want: queuestatus.Options{SchedulerNames: []string{"b"}, Policies: []string{"capacity"}, Pools: []config.Pool{
				{Name: "big", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"size": "big"}}},
			}, DeviceClasses: map[string]v1.ResourceName{"gpu.example.com": "example.com/gpu"}, EvictedHold: time.Hour},
		},
		"one in which it is switched off": {profiles: "- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: FairShare}]}, preEnqueue: {disabled: [{name: \"*\"}]}}\n", want: flags},
		"a flag that says it too":         {profiles: "- schedulerName: a\n" + with, changed: "queue-policies", wrong: "--queue-policies"},
		"what is wrong is named": {
			profiles: "- schedulerName: a\n" + with + "  pluginConfig: [{name: FairShare, args: {pools: [{name: big}]}}]\n", wrong: "profiles[a].pluginConfig[FairShare].args.pools[0].nodeSelector: Required value",
		},
		"what cannot be read": {profiles: "- schedulerName: [a]\n", wrong: "config.yaml"},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := &options{queueSchedulerNames: []string{"by-flag"}, queuePolicies: []string{"proportion"}}
			if c.profiles != "" {
				o.schedulerConfig = write(t, c.profiles)
			}
			got, err := o.queues(func(flag string) bool { return flag == c.changed })
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v, want one that says %s", err, c.wrong)
				}
				return
			}
			must.Succeed(t, err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNatives(t *testing.T) {
	const both = "- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: Gang}]}}\n- schedulerName: b\n- schedulerName: c\n  plugins: {multiPoint: {enabled: [{name: Gang}]}}\n"
	for sentence, c := range map[string]struct {
		profiles, changed string
		want              []string
	}{
		"without a file the flag":    {want: []string{"by-flag"}},
		"the profiles with gangs":    {profiles: both, want: []string{"a", "c"}},
		"the flag, if it was given":  {profiles: both, changed: "native-scheduler-names", want: []string{"by-flag"}},
		"no profile that has gangs":  {profiles: "- schedulerName: b\n"},
		"another flag means nothing": {profiles: both, changed: "queue-policies", want: []string{"a", "c"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := &options{nativeSchedulerNames: []string{"by-flag"}}
			if c.profiles != "" {
				o.schedulerConfig = write(t, c.profiles)
			}
			got, err := o.natives(func(flag string) bool { return flag == c.changed })
			must.Succeed(t, err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("schedulers (-want +got):\n%s", diff)
			}
		})
	}
}
