package gangspec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// maxCount is the most members that a gang may have.
const maxCount = keys.MaxCount

// minimum is what a minimum may be, under any key or field.
var minimum = keys.ValueOf(v1alpha1.MinAvailableAnnotation)

// Parse makes the spec of gang key from what its PodGroup and its defining pod say, either of which may be nil. Field
// by field, the pod's annotations win, then the PodGroup's annotations, then its fields; what is overridden is ignored.
// An empty annotation of the pod overrides too, and asks for the default; only the minimum has none.
//
// Bad values never stop it: they come back as problems that name the key, the value and what is
// used instead. Whatever comes in, in the spec Min is from 0 to 100000, WaitTime positive if that of
// defaults is, RoundTime and PreemptionDelay not negative, and Mode and Policy are valid values.
func Parse(key Key, object *PodGroupDescription, pod *v1.Pod, defaults Defaults) (Spec, []KeyProblem) {
	spec, fault, problems := ParseStarted(key, object, pod, defaults)
	if fault != "" {
		spec.Refuse(fault)
	}
	return spec, problems
}

// Refuse makes a spec that of a gang that must not start.
func (s *Spec) Refuse(why string) { s.Refused, s.Min, s.Stages = why, 0, nil }

// ParseStarted is [Parse] for a gang that may run already. fault is why it must not start by this spec, because of a
// value without which its members could go where the user does not want them; empty for none.
func ParseStarted(key Key, object *PodGroupDescription, pod *v1.Pod,
	defaults Defaults) (spec Spec, fault string, problems []KeyProblem) {
	p := parser{key: key, pod: cmp.Or(pod, &v1.Pod{})}
	if object != nil {
		p.object = *object
	}
	p.spec.Min = p.parseMin()
	p.checkTotal()
	p.spec.Stages = p.parseStages()
	p.spec.Mode = Mode(p.oneOf(v1alpha1.ModeAnnotation))
	p.spec.Policy = MatchPolicy(p.oneOf(v1alpha1.MatchPolicyAnnotation))
	p.spec.RoundTime = p.parseRound()
	p.spec.WaitTime, p.spec.WaitTimeSet = p.parseWait(defaults.WaitTime)
	p.spec.Groups = p.parseGroups()
	p.spec.MinByRole = p.parseRoles()
	p.parseLayout(&defaults.Topology)
	p.spec.MinResources = p.parseMinResources()
	p.spec.PreemptionDelay = p.parsePreemptionDelay("gang")
	p.spec.EvictBy = p.anyOf(v1alpha1.EvictByAnnotation, "what the namespace, or the scheduler's configuration, says")
	p.spec.NeverPreempts, p.spec.Whole = p.object.Never, p.object.Whole
	if p.object.Refused != "" {
		p.spec.Refuse(p.object.Refused)
		return p.spec, "", p.problems
	}
	return p.spec, p.refused, p.problems
}

type parser struct {
	key      Key
	object   PodGroupDescription
	pod      *v1.Pod
	spec     Spec
	problems []KeyProblem
	// refused is why the gang cannot be scheduled as its pods or its PodGroup are; empty for nothing.
	refused string
}

// value returns the annotation as the pod states it, else as the PodGroup does.
func (p *parser) value(key string) (value string, onObject bool) {
	if value, ok := p.pod.Annotations[key]; ok {
		return value, false
	}
	return p.object.Annotations[key], true
}

func (p *parser) bad(onObject bool, key, value, want, used string) {
	p.problems = append(p.problems, KeyProblem{Key: key, Value: value, Want: want, Used: used, OnObject: onObject})
}

// wrongValue reports a value that is none of those that its key takes.
func (p *parser) wrongValue(onObject bool, key, value, used string) {
	p.bad(onObject, key, value, keys.ValueOf(key).Want, used)
}

func (p *parser) parseMin() int {
	key, value := statedMin(p.pod)
	n, err := minimum.ParseInteger(value)
	if err == nil {
		return n
	}
	n, used := p.parseObjectMin()
	if value != "" {
		p.bad(false, key, value, minimum.Want, used)
	}
	return n
}

// parseObjectMin returns the PodGroup's minimum, and how to describe it to users.
func (p *parser) parseObjectMin() (n int, used string) {
	const named = "%d, the PodGroup's minimum"
	value := p.object.Annotations[v1alpha1.MinAvailableAnnotation]
	if n, err := minimum.ParseInteger(value); err == nil {
		return n, fmt.Sprintf(named, n)
	}
	used = "nothing: the gang is held back until it has a minimum"
	switch field := int(p.object.Min); {
	case 0 < field && field <= maxCount:
		n, used = field, fmt.Sprintf(named, field)
	case field != 0:
		p.bad(true, cmp.Or(p.object.MinField, "spec.minMember"), strconv.Itoa(field), minimum.Want, used)
	}
	if value != "" {
		p.bad(true, v1alpha1.MinAvailableAnnotation, value, minimum.Want, used)
	}
	return n, used
}

// checkTotal reports a bad number of members that a Strict round waits to have tried. Nothing depends on it, since a
// group is tried again with each member that comes.
func (p *parser) checkTotal() {
	value, onObject := p.value(v1alpha1.TotalNumberAnnotation)
	if value == "" {
		return
	}
	used := fmt.Sprintf("%d, the minimum", p.spec.Min)
	if p.spec.Min == 0 {
		used = "the minimum, once there is one"
	}
	if n, err := minimum.ParseInteger(value); err != nil {
		p.bad(onObject, v1alpha1.TotalNumberAnnotation, value, minimum.Want, used)
	} else if n < p.spec.Min {
		p.bad(onObject, v1alpha1.TotalNumberAnnotation, value, "at least the minimum", used)
	}
}

// oneOf reads an enumeration whose first value is the default.
func (p *parser) oneOf(key string) string {
	first := keys.ValueOf(key).OneOf[0]
	return cmp.Or(p.anyOf(key, first), first)
}

// anyOf reads an enumeration that may be left out. used is what is used in place of a value that it does not have.
func (p *parser) anyOf(key, used string) string {
	value, onObject := p.value(key)
	if value != "" && !slices.Contains(keys.ValueOf(key).OneOf, value) {
		p.wrongValue(onObject, key, value, used)
		return ""
	}
	return value
}

const usedNothing = "nothing: the gang waits until this is corrected"

// holdBack reports a value without which the members could go where the user does not want them: the gang waits until
// it is corrected.
func (p *parser) holdBack(onObject bool, key, value string) {
	problem := KeyProblem{Key: key, Value: value, Want: keys.ValueOf(key).Want, Used: usedNothing, OnObject: onObject}
	p.problems = append(p.problems, problem)
	p.refused = cmp.Or(p.refused, problem.Fault()+"; correct it on "+carrier(onObject))
}

func carrier(onObject bool) string {
	if onObject {
		return "its PodGroup"
	}
	return "its pods, in the template that they are made from"
}

func (p *parser) parseWait(defaultWait time.Duration) (time.Duration, bool) {
	value, onObject := p.value(v1alpha1.WaitingTimeAnnotation)
	if parsed, err := time.ParseDuration(value); err == nil && parsed > 0 {
		return parsed, true
	}
	if value != "" {
		used := fmt.Sprintf("%s, the default, for each round, without an end", defaultWait)
		switch {
		case p.spec.RoundTime > 0:
			used = fmt.Sprintf("none: rounds of %s, as the PodGroup has it, without an end", p.spec.RoundTime)
		case p.spec.Mode == NonStrict:
			used = fmt.Sprintf("%s, the default", defaultWait)
		}
		p.wrongValue(onObject, v1alpha1.WaitingTimeAnnotation, value, used)
	}
	return defaultWait, false
}

func (p *parser) parseRound() time.Duration {
	seconds := p.object.RoundSeconds
	switch {
	case seconds == nil || *seconds == 0:
		return 0
	case *seconds < 0:
		p.bad(true, "spec.scheduleTimeoutSeconds", strconv.Itoa(int(*seconds)), "a number of seconds, or 0 for none",
			"none: rounds have no time of their own")
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

// PreemptionDelayOf returns the preemption delay of a pod in no gang, which is a gang of one for that, and what is
// wrong with it; nil if nothing is.
func PreemptionDelayOf(pod *v1.Pod) (time.Duration, *KeyProblem) {
	p := parser{pod: pod}
	delay := p.parsePreemptionDelay("pod")
	if len(p.problems) > 0 {
		return delay, &p.problems[0]
	}
	return delay, nil
}

func (p *parser) parsePreemptionDelay(of string) time.Duration {
	value, onObject := p.value(v1alpha1.PreemptionDelayAnnotation)
	if value == "" {
		return 0
	}
	delay, err := time.ParseDuration(value)
	if err != nil || delay < 0 {
		p.wrongValue(onObject, v1alpha1.PreemptionDelayAnnotation, value,
			fmt.Sprintf("0s: the %s may evict others at once", of))
		return 0
	}
	return delay
}

func (p *parser) parseGroups() []Key {
	value, onObject := p.value(v1alpha1.GroupsAnnotation)
	if value == "" || value == `""` {
		return nil
	}
	others, err := readGroups(value)
	if err != nil {
		want := keys.ValueOf(v1alpha1.GroupsAnnotation).Want
		if errors.Is(err, errTooMany) {
			want = fmt.Sprintf("a list of at most %d gangs", maxTogether)
		}
		p.bad(onObject, v1alpha1.GroupsAnnotation, value, want, "none: the gang is alone")
		return nil
	}
	others = slices.DeleteFunc(others, func(key Key) bool { return key == p.key })
	if len(others) == 0 {
		return nil
	}
	slices.SortFunc(others, CompareKeys)
	return slices.Compact(others)
}

// maxTogether is how many gangs start together at most, and longGroups is more than their names take.
const (
	maxTogether = keys.MaxGroups
	longGroups  = maxTogether * 400
)

var errTooMany = errors.New("too many")

func readGroups(value string) ([]Key, error) {
	if len(value) > longGroups {
		return nil, fmt.Errorf("reading groups of %d bytes: %w", len(value), errTooMany)
	}
	var names []string
	if err := json.Unmarshal([]byte(value), &names); err != nil {
		return nil, fmt.Errorf("reading groups: %w", err)
	}
	if names == nil {
		return nil, errors.New("reading groups: null")
	}
	if len(names) > maxTogether {
		return nil, fmt.Errorf("reading %d groups: %w", len(names), errTooMany)
	}
	others := make([]Key, len(names))
	for i, name := range names {
		key, err := ParseKey(name)
		if err != nil {
			return nil, err
		}
		others[i] = key
	}
	return others, nil
}

func (p *parser) parseRoles() map[string]int {
	value, onObject := p.value(v1alpha1.MinByRoleAnnotation)
	if value == "" {
		return nil
	}
	roles, err := readRoles(value)
	if err != nil {
		p.wrongValue(onObject, v1alpha1.MinByRoleAnnotation, value, "no minimum by role")
		return nil
	}
	if len(roles) == 0 {
		return nil
	}
	sum := 0
	for _, n := range roles {
		sum += n
	}
	if p.spec.Min > 0 && sum > p.spec.Min {
		p.bad(onObject, v1alpha1.MinByRoleAnnotation, value,
			fmt.Sprintf("within the minimum of %d: its sum is %d", p.spec.Min, sum),
			"no minimum by role: members of any roles start the gang")
	}
	return roles
}

func readRoles(value string) (map[string]int, error) {
	var read map[string]*int // pointers, since null would pass for 0
	if err := json.Unmarshal([]byte(value), &read); err != nil {
		return nil, fmt.Errorf("reading roles: %w", err)
	}
	if read == nil {
		return nil, errors.New("reading roles: null")
	}
	roles := make(map[string]int, len(read))
	for role, n := range read {
		if role == "" || len(validation.IsValidLabelValue(role)) > 0 || n == nil || *n < 0 || *n > maxCount {
			return nil, fmt.Errorf("reading roles: minimum of %q", role)
		}
		roles[role] = *n
	}
	return roles, nil
}

// parseRequired reads the topology that has to have all members in one domain. That of the
// PodGroup's spec is a label key: the API server ensures that.
func (p *parser) parseRequired() string {
	_, said := p.pod.Annotations[v1alpha1.RequiredTopologyAnnotation]
	if !said && p.object.Annotations[v1alpha1.RequiredTopologyAnnotation] == "" {
		return p.object.Topology
	}
	value, onObject := p.value(v1alpha1.RequiredTopologyAnnotation)
	if value != "" && len(validation.IsQualifiedName(value)) > 0 {
		p.holdBack(onObject, v1alpha1.RequiredTopologyAnnotation, value)
		return ""
	}
	return value
}

func (p *parser) parsePreferred() string {
	const key = v1alpha1.PreferredTopologyAnnotation
	value, onObject := p.value(key)
	if value != "" && len(validation.IsQualifiedName(value)) > 0 {
		p.wrongValue(onObject, key, value, "no topology")
		return ""
	}
	return value
}

// parseMinResources reads which resources the PodGroup wants to be free. They are for its own minimum: where an
// annotation asks for fewer members, they mean nothing. A gang that asks for what no cluster can have is refused.
func (p *parser) parseMinResources() resource.Vector {
	if p.spec.Min < int(p.object.Min) && p.spec.Min > 0 {
		return nil
	}
	var floor resource.Vector
	for _, name := range slices.Sorted(maps.Keys(p.object.MinResources)) {
		amount := p.object.MinResources[name]
		if amount.Sign() < 0 {
			p.bad(true, "spec.minResources", fmt.Sprintf("%s: %s", name, resource.Text(&amount)), "an amount of 0 or more",
				"the others, and nothing for "+string(name))
			continue
		}
		one := v1.ResourceList{name: amount}
		if fault := resource.Check("spec.minResources", one, resource.MaxOfAll); fault != nil {
			p.refused = cmp.Or(p.refused, "its PodGroup asks for what no cluster can have: "+fault.Error())
			continue
		}
		if amount.Sign() > 0 {
			if floor == nil {
				floor = resource.Vector{}
			}
			floor.Add(resource.FromList(one), 1)
		}
	}
	return floor
}
