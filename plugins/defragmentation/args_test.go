package defragmentation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/descheduler"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func read(t *testing.T, text string) *descheduler.DefragmentationArgs {
	t.Helper()
	args := &descheduler.DefragmentationArgs{}
	must.Succeed(t, json.Unmarshal([]byte(text), args))
	return args
}

// TestValidate: each invalid value is reported with its field and what to do.
func TestValidate(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "",
		`{"lowThresholds": {"nvidia.com/gpu": 40}, "defragmentThresholds": {"nvidia.com/gpu": 70}, "protectionThresholds": {"nvidia.com/gpu": 90}}`: "",
		`{"coolDownTime": 300}`:               "",
		`{"coolDownTime": "5m"}`:              "",
		`{"minRuntime": "-1s"}`:               "Defragmentation.args.minRuntime: Invalid value: \"-1s\": must be from 0s to 24h",
		`{"lowThresholds": {"cpu": 101}}`:     "Defragmentation.args.lowThresholds[cpu]",
		`{"protectionThresholds": {"x": -1}}`: "Defragmentation.args.protectionThresholds[x]",
		`{"defragmentThresholds": {"cpu": 95}, "protectionThresholds": {"cpu": 90}}`: "must not be above protectionThresholds, 90: no node could be a target",
		`{"mode": "Often"}`: `Defragmentation.args.mode: Unsupported value: "Often": supported values: "Demand"`,
		`{"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}`: "only one of them may be set",
		`{"maxMoves": 0}`:                   "Defragmentation.args.maxMoves: Invalid value: 0: must be from 1 to 1024",
		`{"maxGangs": 0}`:                   "",
		`{"numberOfNodes": -1}`:             "Defragmentation.args.numberOfNodes",
		`{"controllerKinds": ["Workflow"]}`: `Defragmentation.args.controllerKinds[0]: Invalid value: "Workflow": must be Kind.group`,
		`{"minGain": -1}`:                   "Defragmentation.args.minGain: Invalid value: -1: must be a percentage from 0 to 10000",
		`{"holdTime": "25h"}`:               "Defragmentation.args.holdTime",
		`{"resourceType": "a b"}`:           `Defragmentation.args.resourceType: Invalid value: "a b": must be the name of a resource`,
		`{"lowThresholds": {"a b": 10}}`:    `Defragmentation.args.lowThresholds[a b]: Invalid value: "a b": must be the name of a resource`,
		`{"unit": "not a label key"}`:       "Defragmentation.args.unit",
	} {
		err := Validate(read(t, text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if err := Validate(&v1.Pod{}); err == nil {
		t.Error("a pod is taken for arguments")
	}
}

// TestSetDefaults: a policy with only the thresholds works.
func TestSetDefaults(t *testing.T) {
	args := read(t, `{"lowThresholds": {"example.com/card": 30}, "coolDownTime": 90}`)
	SetDefaults(args)
	if args.ResourceType != "example.com/card" || args.Mode != descheduler.DemandMode || *args.MaxMoves != 32 || *args.MaxGangs != 4 || *args.MaxEvictions != 4 {
		t.Errorf("they are %+v", args)
	}
	if args.CoolDownTime.Duration != 90*time.Second || args.ProtectionThresholds["example.com/card"] != 100 || args.LowThresholds["example.com/card"] != 30 {
		t.Errorf("they are %+v", args)
	}
	SetDefaults(&v1.Pod{}) // another type of arguments
}

// TestDuration: a duration is read either way; what is none is reported with its path.
func TestDuration(t *testing.T) {
	for _, text := range []string{`"soon"`, `true`, `1.5`, `9223372036854775807`, `"9999999h"`, `{}`, `""`} {
		for _, name := range []string{"coolDownTime", "minRuntime", "holdTime", "waitedFor"} {
			err := Validate(read(t, fmt.Sprintf(`{%q: %s}`, name, text)))
			if err == nil || !strings.Contains(err.Error(), "Defragmentation.args."+name+": Invalid value: ") || !strings.Contains(err.Error(), "must be a duration") {
				t.Errorf("%s: %s: %v", name, text, err)
			}
		}
	}
}
