package gang

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// Mode says what happens to held members when one does not fit.
type Mode string

const (
	// Strict: one failure fails the round and gives back all that is held.
	Strict Mode = v1alpha1.ModeStrict
	// NonStrict: what fits is held, and accumulates until the minimum is reached.
	NonStrict Mode = v1alpha1.ModeNonStrict
)

// MatchPolicy says which members count towards the minimum.
type MatchPolicy string

const (
	// OnceSatisfied: after the first release later members go alone.
	OnceSatisfied MatchPolicy = v1alpha1.MatchOnceSatisfied
	// OnlyWaiting: only members that are held count.
	OnlyWaiting MatchPolicy = v1alpha1.MatchOnlyWaiting
	// WaitingAndRunning: held and running members count.
	WaitingAndRunning MatchPolicy = v1alpha1.MatchWaitingAndRunning
)

// Spec is what the user asked for, with every default filled in.
type Spec struct {
	// Min is the number of members that start together; 0 means that nobody has
	// said it (yet), and then no member is scheduled.
	Min int
	// Total is the number of members that a Strict round waits to have tried. Not below Min.
	Total int
	Mode  Mode
	// WaitTime is the longest time since the first member was held. After it nobody is
	// tried again until the user acts.
	WaitTime time.Duration
	// WaitTimeSet tells that the user wrote it.
	WaitTimeSet bool
	// RoundTime is the longest time since the first member of a round was held. After it
	// the round has failed, and the gang is tried again. 0 where nobody said it.
	RoundTime time.Duration
	// Groups are the other gangs that start together with this one, sorted,
	// without duplicates and without itself.
	Groups []Key
	Policy MatchPolicy
	// Stages are the minimums of the parts that are made one after the other; nil where all
	// members are made at once.
	Stages Stages
	// MinByRole is the minimum of each role; nil where there are no roles.
	MinByRole map[string]int
	// RequiredTopology is the key of the node label in one domain of which all members have
	// to be; empty for none.
	RequiredTopology string
	// Layout is how they are laid out inside that.
	Layout Layout
	// PreemptionDelay is how long the gang evicts nobody, from when it first did not fit; not negative.
	PreemptionDelay time.Duration
	// MinResources is what has to be free for the gang in all before it starts; nil for
	// nothing. All amounts are positive.
	MinResources resource.Vector
	// Never: the gang evicts nobody. Whole: it is evicted whole, or not at all.
	Never, Whole bool
	// Refused is why no member is scheduled; then Min is 0. Empty for nothing.
	Refused string
}

// Defaults are what holds for gangs that say nothing else.
type Defaults struct {
	// WaitTime is how long a gang holds what it has.
	WaitTime time.Duration
	Topology Topology
}

// RolesBind reports whether the minimum of each role has to be there. A gang whose minimum is
// below their sum is elastic, and its roles do not bind it.
func (s *Spec) RolesBind() bool {
	sum := 0
	for _, n := range s.MinByRole {
		sum += n
	}
	return sum > 0 && s.Min >= sum
}

// Problem is a value that could not be used.
type Problem struct {
	Key   string // the annotation or field
	Value string // as the user wrote it
	Want  string // what would have been right
	Used  string // what is used instead
	// OnObject: the PodGroup carries it, not the pod.
	OnObject bool
}

// String is the text of the event that tells the user.
func (p Problem) String() string {
	value := p.Value
	if len(value) > longValue {
		value = strings.ToValidUTF8(value[:longValue], "") + "..."
	}
	return fmt.Sprintf("%s: %q is not %s; using %s", p.Key, value, p.Want, p.Used)
}

// longValue is as much of a value as is quoted: an event has a limit, and what follows the
// value matters more than its end.
const longValue = 200

// Object is what a PodGroup says of a gang. Zero fields say nothing.
type Object struct {
	UID types.UID
	Min int32
	// MinField is what users call the field that Min is; empty for spec.minMember.
	MinField string
	// RoundSeconds is spec.scheduleTimeoutSeconds. Operators write it into all PodGroups,
	// or 0 for nothing.
	RoundSeconds *int32
	// MinResources is spec.minResources as it is written.
	MinResources v1.ResourceList
	Annotations  map[string]string
	// Queue is the queue that it names; empty for none.
	Queue string

	// The rest only native PodGroups say, see [ReadNative].

	// Basic: its pods need not start together.
	Basic bool
	// Topology is the key of the node label in one domain of which all pods have to be.
	Topology     string
	Never, Whole bool
	// Priority is what it states; nil for nothing.
	Priority *int32
	// Refused is why none of its pods is scheduled.
	Refused string
	// Problems are what is not understood of it.
	Problems []Problem
}

// Fields is what a pod says of its gang: its annotations, and its labels for the
// label form of the minimum.
type Fields struct {
	Annotations, Labels map[string]string
}

// min is the minimum as this pod states it, and under which key.
func (f Fields) min() (key, value string) {
	if value, ok := f.Annotations[v1alpha1.MinAvailableAnnotation]; ok {
		return v1alpha1.MinAvailableAnnotation, value
	}
	if value, ok := f.Labels[v1alpha1.PodGroupMinAvailableLabel]; ok {
		return v1alpha1.PodGroupMinAvailableLabel, value
	}
	return v1alpha1.PodGroupMinAvailableLabel, f.Annotations[v1alpha1.PodGroupMinAvailableLabel]
}

// Defines reports whether this pod states a usable minimum, and so may define the
// gang. bad is set where it states one that cannot be used.
func (f Fields) Defines() (ok bool, bad *Problem) {
	key, value := f.min()
	if value == "" {
		return false, nil
	}
	if _, err := parseCount(value); err != nil {
		return false, &Problem{Key: key, Value: value, Want: wantCount, Used: "the minimum that another member or the PodGroup states; without one the gang is held back"}
	}
	return true, nil
}

// describing are the annotations that describe a gang; the last one is a label,
// too.
var describing = [...]string{
	v1alpha1.MinAvailableAnnotation, v1alpha1.WaitingTimeAnnotation, v1alpha1.TotalNumberAnnotation,
	v1alpha1.ModeAnnotation, v1alpha1.GroupsAnnotation, v1alpha1.MatchPolicyAnnotation,
	v1alpha1.RequiredTopologyAnnotation, v1alpha1.PreferredTopologyAnnotation, v1alpha1.MinByRoleAnnotation,
	v1alpha1.TopologySlicesAnnotation, v1alpha1.TopologyScopeAnnotation, v1alpha1.TopologySpreadAnnotation,
	v1alpha1.NetworkTopologySpecAnnotation, v1alpha1.StagesAnnotation,
	v1alpha1.PreemptionDelayAnnotation,
	v1alpha1.PodGroupMinAvailableLabel,
}

// Describes reports whether the pod carries anything but membership, so that it
// may add to what a PodGroup says.
func (f Fields) Describes() bool {
	for _, key := range describing {
		if _, ok := f.Annotations[key]; ok {
			return true
		}
	}
	_, ok := f.Labels[v1alpha1.PodGroupMinAvailableLabel]
	return ok
}

// same reports whether both say the same of their gang.
func (f Fields) same(other Fields) bool {
	for _, key := range describing {
		if !sameEntry(f.Annotations, other.Annotations, key) {
			return false
		}
	}
	return sameEntry(f.Labels, other.Labels, v1alpha1.PodGroupMinAvailableLabel)
}

func sameEntry(a, b map[string]string, key string) bool {
	x, inA := a[key]
	y, inB := b[key]
	return inA == inB && x == y
}

const (
	wantCount = "a whole number from 1 to 100000"
	maxCount  = 100000
)

// Parse makes the spec of gang key from what its PodGroup (may be nil) and its
// defining pod (may be empty) say. Field by field, the pod's annotations win, then
// the PodGroup's annotations, then its fields; what is overridden is not looked
// at. An empty annotation of the pod overrides too, and asks for the default; only
// the minimum has none.
//
// Bad values never stop it: they come back as problems that name the key, the
// value and what is used instead. Whatever comes in, in the spec Min is from 0 to
// 100000, Total from Min to 100000, WaitTime positive if that of defaults is,
// RoundTime and PreemptionDelay not negative, and Mode and Policy are one of theirs.
func Parse(key Key, object *Object, pod Fields, defaults Defaults) (Spec, []Problem) {
	p := parser{key: key, pod: pod}
	if object != nil {
		p.object = *object
	}
	p.spec.Min = p.parseMin()
	p.spec.Total = p.parseTotal()
	p.spec.Stages = p.parseStages()
	p.spec.Mode = Mode(p.oneOf(v1alpha1.ModeAnnotation, v1alpha1.ModeStrict, v1alpha1.ModeNonStrict))
	p.spec.Policy = MatchPolicy(p.oneOf(v1alpha1.MatchPolicyAnnotation, v1alpha1.MatchOnceSatisfied, v1alpha1.MatchOnlyWaiting, v1alpha1.MatchWaitingAndRunning))
	p.spec.RoundTime = p.parseRound()
	p.spec.WaitTime, p.spec.WaitTimeSet = p.parseWait(defaults.WaitTime)
	p.spec.Groups = p.parseGroups()
	p.spec.MinByRole = p.parseRoles()
	p.parseLayout(&defaults.Topology)
	p.spec.MinResources = p.parseMinResources()
	p.spec.PreemptionDelay = p.parsePreemptionDelay()
	p.spec.Never, p.spec.Whole = p.object.Never, p.object.Whole
	if p.object.Refused != "" {
		p.spec.Refused, p.spec.Min, p.spec.Stages = p.object.Refused, 0, nil
	}
	return p.spec, p.problems
}

type parser struct {
	key      Key
	object   Object
	pod      Fields
	spec     Spec
	problems []Problem
}

// value is the annotation as the pod states it, else as the PodGroup does.
func (p *parser) value(key string) (value string, onObject bool) {
	if value, ok := p.pod.Annotations[key]; ok {
		return value, false
	}
	return p.object.Annotations[key], true
}

func (p *parser) bad(onObject bool, key, value, want, used string) {
	p.problems = append(p.problems, Problem{Key: key, Value: value, Want: want, Used: used, OnObject: onObject})
}

func (p *parser) parseMin() int {
	key, value := p.pod.min()
	n, err := parseCount(value)
	if err == nil {
		return n
	}
	n, used := p.parseObjectMin()
	if value != "" {
		p.bad(false, key, value, wantCount, used)
	}
	return n
}

// parseObjectMin reads the PodGroup's minimum, and how to name it to users.
func (p *parser) parseObjectMin() (n int, used string) {
	const named = "%d, the PodGroup's minimum"
	value := p.object.Annotations[v1alpha1.MinAvailableAnnotation]
	if n, err := parseCount(value); err == nil {
		return n, fmt.Sprintf(named, n)
	}
	used = "nothing: the gang is held back until it has a minimum"
	switch field := int(p.object.Min); {
	case 0 < field && field <= maxCount:
		n, used = field, fmt.Sprintf(named, field)
	case field != 0:
		p.bad(true, cmp.Or(p.object.MinField, "spec.minMember"), strconv.Itoa(field), wantCount, used)
	}
	if value != "" {
		p.bad(true, v1alpha1.MinAvailableAnnotation, value, wantCount, used)
	}
	return n, used
}

func (p *parser) parseTotal() int {
	value, onObject := p.value(v1alpha1.TotalNumberAnnotation)
	if value == "" {
		return p.spec.Min
	}
	used := fmt.Sprintf("%d, the minimum", p.spec.Min)
	if p.spec.Min == 0 {
		used = "the minimum, once there is one"
	}
	n, err := parseCount(value)
	if err != nil {
		p.bad(onObject, v1alpha1.TotalNumberAnnotation, value, wantCount, used)
		return p.spec.Min
	}
	if n < p.spec.Min {
		p.bad(onObject, v1alpha1.TotalNumberAnnotation, value, "at least the minimum", used)
		return p.spec.Min
	}
	return n
}

// oneOf reads an enumeration whose first value is the default.
func (p *parser) oneOf(key string, values ...string) string {
	value, onObject := p.value(key)
	if value == "" {
		return values[0]
	}
	if !slices.Contains(values, value) {
		p.bad(onObject, key, value, "one of "+strings.Join(values, ", "), values[0])
		return values[0]
	}
	return value
}

func (p *parser) parseWait(defaultWait time.Duration) (time.Duration, bool) {
	value, onObject := p.value(v1alpha1.WaitingTimeAnnotation)
	if parsed, err := time.ParseDuration(value); err == nil && parsed > 0 {
		return parsed, true
	}
	if value != "" {
		used := fmt.Sprintf("%s, the default", defaultWait)
		if p.spec.RoundTime > 0 {
			used = fmt.Sprintf("none: rounds of %s, as the PodGroup has it, without an end", p.spec.RoundTime)
		}
		p.bad(onObject, v1alpha1.WaitingTimeAnnotation, value, "a positive duration such as 90s or 1h", used)
	}
	return defaultWait, false
}

func (p *parser) parseRound() time.Duration {
	seconds := p.object.RoundSeconds
	switch {
	case seconds == nil || *seconds == 0:
		return 0
	case *seconds < 0:
		p.bad(true, "spec.scheduleTimeoutSeconds", strconv.Itoa(int(*seconds)), "a number of seconds, or 0 for none", "none: rounds have no time of their own")
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

func (p *parser) parsePreemptionDelay() time.Duration {
	value, onObject := p.value(v1alpha1.PreemptionDelayAnnotation)
	if value == "" {
		return 0
	}
	delay, err := time.ParseDuration(value)
	if err != nil || delay < 0 {
		p.bad(onObject, v1alpha1.PreemptionDelayAnnotation, value, "a duration such as 90s or 10m", "0s: the gang may evict others at once")
		return 0
	}
	return delay
}

func (p *parser) parseGroups() []Key {
	value, onObject := p.value(v1alpha1.GroupsAnnotation)
	if value == "" || value == `""` {
		return nil
	}
	keys, err := readGroups(value)
	if err != nil {
		p.bad(onObject, v1alpha1.GroupsAnnotation, value, `a JSON list of "namespace/name"`, "none: the gang is alone")
		return nil
	}
	keys = slices.DeleteFunc(keys, func(key Key) bool { return key == p.key })
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

func readGroups(value string) ([]Key, error) {
	var names []string
	if err := json.Unmarshal([]byte(value), &names); err != nil {
		return nil, fmt.Errorf("reading groups: %w", err)
	}
	if names == nil {
		return nil, errors.New("reading groups: null")
	}
	keys := make([]Key, len(names))
	for i, name := range names {
		key, err := ParseKey(name)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	return keys, nil
}

func (p *parser) parseRoles() map[string]int {
	value, onObject := p.value(v1alpha1.MinByRoleAnnotation)
	if value == "" {
		return nil
	}
	roles, err := readRoles(value)
	if err != nil {
		p.bad(onObject, v1alpha1.MinByRoleAnnotation, value, "a JSON object from role to a minimum of 0 to 100000", "no minimum by role")
		return nil
	}
	if len(roles) == 0 {
		return nil
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

// parseRequired reads the topology in one domain of which all members have to be. That of the
// PodGroup's spec is a label key: the API server sees to that.
func (p *parser) parseRequired() string {
	_, said := p.pod.Annotations[v1alpha1.RequiredTopologyAnnotation]
	if !said && p.object.Annotations[v1alpha1.RequiredTopologyAnnotation] == "" {
		return p.object.Topology
	}
	return p.parseTopology(v1alpha1.RequiredTopologyAnnotation)
}

func (p *parser) parseTopology(key string) string {
	value, onObject := p.value(key)
	if value != "" && len(validation.IsQualifiedName(value)) > 0 {
		p.bad(onObject, key, value, "a node label key", "no topology")
		return ""
	}
	return value
}

// parseMinResources reads what the PodGroup wants free.
func (p *parser) parseMinResources() resource.Vector {
	var floor resource.Vector
	for _, name := range slices.Sorted(maps.Keys(p.object.MinResources)) {
		switch amount := p.object.MinResources[name]; amount.Sign() {
		case -1:
			p.bad(true, "spec.minResources", fmt.Sprintf("%s: %s", name, amount.String()), "an amount of 0 or more", "the others, and nothing for "+string(name))
		case 1:
			if floor == nil {
				floor = resource.Vector{}
			}
			floor.Add(resource.FromList(v1.ResourceList{name: amount}), 1)
		}
	}
	return floor
}

// parseCount reads a whole number from 1 to 100000, digits only.
func parseCount(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("reading count: %w", err)
	}
	if n == 0 || n > maxCount {
		return 0, fmt.Errorf("reading count %q: want %s", value, wantCount)
	}
	return int(n), nil
}
