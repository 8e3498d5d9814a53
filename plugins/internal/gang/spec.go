package gang

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
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
	// WaitTime is the longest time since the first member was held.
	WaitTime time.Duration
	// WaitTimeSet tells that the user wrote it.
	WaitTimeSet bool
	// Groups are the other gangs that start together with this one, sorted,
	// without duplicates and without itself.
	Groups []Key
	Policy MatchPolicy
	// MinByRole is the minimum of each role; nil where there are no roles.
	MinByRole map[string]int
	// RequiredTopology and PreferredTopology are node label keys, or empty.
	RequiredTopology, PreferredTopology string
}

// Problem is a value that could not be used. Where says on which object.
type Problem struct {
	Key   string // the annotation or field
	Value string // as the user wrote it
	Want  string // what would have been right
	Used  string // what is used instead
}

// String is the text of the event that tells the user.
func (p Problem) String() string {
	return fmt.Sprintf("%s: %q is not %s; using %s", p.Key, p.Value, p.Want, p.Used)
}

// Object is what a PodGroup says of a gang. Zero fields say nothing.
type Object struct {
	Min         int32
	WaitSeconds *int32
	Annotations map[string]string
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

// Defines tells whether this pod states a usable minimum, and so may define the
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

// Describes tells whether the pod carries anything but membership, so that it
// may add to what a PodGroup says.
func (f Fields) Describes() bool {
	for _, key := range [...]string{
		v1alpha1.MinAvailableAnnotation, v1alpha1.WaitingTimeAnnotation, v1alpha1.TotalNumberAnnotation,
		v1alpha1.ModeAnnotation, v1alpha1.GroupsAnnotation, v1alpha1.MatchPolicyAnnotation,
		v1alpha1.RequiredTopologyAnnotation, v1alpha1.PreferredTopologyAnnotation, v1alpha1.MinByRoleAnnotation,
		v1alpha1.PodGroupMinAvailableLabel,
	} {
		if _, ok := f.Annotations[key]; ok {
			return true
		}
	}
	_, ok := f.Labels[v1alpha1.PodGroupMinAvailableLabel]
	return ok
}

const (
	wantCount    = "a whole number from 1 to 100000"
	maxCount     = 100000
	wantLabelKey = "a node label key"
)

// Parse makes the spec of gang key from what its PodGroup (may be nil) and its
// defining pod (may be empty) say; the pod's annotations win, field by field.
// Bad values never stop it: they come back as problems that name the key, the
// value and what is used instead.
func Parse(key Key, object *Object, pod Fields, defaultWait time.Duration) (Spec, []Problem) {
	p := parser{key: key, pod: pod}
	if object != nil {
		p.object = *object
	}
	p.spec.Min = p.parseMin()
	p.spec.Total = p.parseTotal()
	p.spec.Mode = Mode(p.oneOf(v1alpha1.ModeAnnotation, v1alpha1.ModeStrict, v1alpha1.ModeNonStrict))
	p.spec.Policy = MatchPolicy(p.oneOf(v1alpha1.MatchPolicyAnnotation, v1alpha1.MatchOnceSatisfied, v1alpha1.MatchOnlyWaiting, v1alpha1.MatchWaitingAndRunning))
	p.spec.WaitTime, p.spec.WaitTimeSet = p.parseWait(defaultWait)
	p.spec.Groups = p.parseGroups()
	p.spec.MinByRole = p.parseRoles()
	p.spec.RequiredTopology = p.parseTopology(v1alpha1.RequiredTopologyAnnotation)
	p.spec.PreferredTopology = p.parseTopology(v1alpha1.PreferredTopologyAnnotation)
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
func (p *parser) value(key string) string {
	if value, ok := p.pod.Annotations[key]; ok {
		return value
	}
	return p.object.Annotations[key]
}

func (p *parser) bad(key, value, want, used string) {
	p.problems = append(p.problems, Problem{Key: key, Value: value, Want: want, Used: used})
}

func (p *parser) parseMin() int {
	const none = "nothing: the gang is held back until it has a minimum"
	if key, value := p.pod.min(); value != "" {
		n, err := parseCount(value)
		if err == nil {
			return n
		}
		if p.object.Min > 0 {
			p.bad(key, value, wantCount, fmt.Sprintf("%d, the PodGroup's minimum", p.object.Min))
		} else {
			p.bad(key, value, wantCount, none)
		}
	}
	if p.object.Min > 0 {
		return int(p.object.Min)
	}
	if value := p.object.Annotations[v1alpha1.MinAvailableAnnotation]; value != "" {
		n, err := parseCount(value)
		if err == nil {
			return n
		}
		p.bad(v1alpha1.MinAvailableAnnotation, value, wantCount, none)
	}
	return 0
}

func (p *parser) parseTotal() int {
	value := p.value(v1alpha1.TotalNumberAnnotation)
	if value == "" {
		return p.spec.Min
	}
	used := fmt.Sprintf("%d, the minimum", p.spec.Min)
	n, err := parseCount(value)
	if err != nil {
		p.bad(v1alpha1.TotalNumberAnnotation, value, wantCount, used)
		return p.spec.Min
	}
	if n < p.spec.Min {
		p.bad(v1alpha1.TotalNumberAnnotation, value, "at least the minimum", used)
		return p.spec.Min
	}
	return n
}

// oneOf reads an enumeration whose first value is the default.
func (p *parser) oneOf(key string, values ...string) string {
	value := p.value(key)
	if value == "" {
		return values[0]
	}
	if !slices.Contains(values, value) {
		p.bad(key, value, "one of "+strings.Join(values, ", "), values[0])
		return values[0]
	}
	return value
}

func (p *parser) parseWait(defaultWait time.Duration) (time.Duration, bool) {
	const want = "a positive duration such as 90s or 1h"
	wait, set, used := defaultWait, false, fmt.Sprintf("%s, the default", defaultWait)
	if seconds := p.object.WaitSeconds; seconds != nil {
		if *seconds > 0 {
			wait, set = time.Duration(*seconds)*time.Second, true
			used = fmt.Sprintf("%s, the PodGroup's", wait)
		} else {
			p.bad("spec.scheduleTimeoutSeconds", strconv.Itoa(int(*seconds)), "a positive number of seconds", used)
		}
	}
	value := p.value(v1alpha1.WaitingTimeAnnotation)
	if value == "" {
		return wait, set
	}
	parsed, err := time.ParseDuration(value)
	if err != nil || parsed <= 0 {
		p.bad(v1alpha1.WaitingTimeAnnotation, value, want, used)
		return wait, set
	}
	return parsed, true
}

func (p *parser) parseGroups() []Key {
	value := p.value(v1alpha1.GroupsAnnotation)
	if value == "" || value == `""` {
		return nil
	}
	const want, used = `a JSON list of "namespace/name"`, "none: the gang is alone"
	var names []string
	if err := json.Unmarshal([]byte(value), &names); err != nil {
		p.bad(v1alpha1.GroupsAnnotation, value, want, used)
		return nil
	}
	keys := make([]Key, 0, len(names))
	for _, name := range names {
		key, err := ParseKey(name)
		if err != nil {
			p.bad(v1alpha1.GroupsAnnotation, value, want, used)
			return nil
		}
		if key != p.key {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

func (p *parser) parseRoles() map[string]int {
	value := p.value(v1alpha1.MinByRoleAnnotation)
	if value == "" {
		return nil
	}
	const want, used = "a JSON object from role to a minimum of 0 or more", "no minimum by role"
	var roles map[string]int
	if err := json.Unmarshal([]byte(value), &roles); err != nil {
		p.bad(v1alpha1.MinByRoleAnnotation, value, want, used)
		return nil
	}
	for role, n := range roles {
		if len(validation.IsValidLabelValue(role)) > 0 || role == "" || n < 0 || n > maxCount {
			p.bad(v1alpha1.MinByRoleAnnotation, value, want, used)
			return nil
		}
	}
	if len(roles) == 0 {
		return nil
	}
	return roles
}

func (p *parser) parseTopology(key string) string {
	value := p.value(key)
	if value != "" && len(validation.IsQualifiedName(value)) > 0 {
		p.bad(key, value, wantLabelKey, "no topology")
		return ""
	}
	return value
}

// parseCount reads a whole number from 1 to 100000, digits only.
func parseCount(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("reading count %q: %w", value, err)
	}
	if n == 0 || n > min(maxCount, math.MaxInt32) {
		return 0, fmt.Errorf("reading count %q: want %s", value, wantCount)
	}
	return int(n), nil
}
