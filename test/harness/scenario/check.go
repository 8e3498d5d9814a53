package scenario

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// check finds what decoding cannot: names that nothing defines, steps that do nothing or two things.
func (s *Scenario) check() error {
	p, err := newPlan(s)
	if err != nil {
		return err
	}
	if strings.TrimSpace(s.Description) == "" {
		return fmt.Errorf("checking description: it is empty")
	}
	if s.Scheduler.Standby && slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Configure != "" }) {
		return fmt.Errorf("checking scheduler: a scheduler with a second replica cannot be configured anew")
	}
	if s.Scheduler.Standby && s.Scheduler.Stopped {
		return fmt.Errorf("checking scheduler: stopped and standby together: the first replica has to lead from the start")
	}
	if len(s.Steps) == 0 {
		return fmt.Errorf("checking steps: there are none")
	}
	if !s.Controller && slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Controller != "" }) {
		return fmt.Errorf("checking controller: a step is about it, and there is none: set controller: true")
	}
	if err := s.checkPrograms(); err != nil {
		return err
	}
	for _, n := range s.Namespaces {
		if n.Name == "" || n.Name == v1.NamespaceDefault {
			return fmt.Errorf("checking namespaces: %q cannot be created", n.Name)
		}
	}
	names, expects := []string{}, false
	for i, step := range s.Steps {
		if err := p.checkStep(step, names); err != nil {
			return fmt.Errorf("checking steps[%d]: %w", i, err)
		}
		if step.Name != "" {
			names = append(names, step.Name)
		}
		expects = expects || step.Expect != nil
	}
	if !expects {
		return fmt.Errorf("checking steps: none expects anything")
	}
	return nil
}

func (p *plan) checkStep(step Step, names []string) error {
	var set []string
	value := reflect.ValueOf(step)
	for i := range value.NumField() {
		if name := value.Type().Field(i).Name; !slices.Contains([]string{"Name", "Title", "Say"}, name) && !value.Field(i).IsZero() {
			set = append(set, name)
		}
	}
	if len(set) != 1 {
		return fmt.Errorf("want exactly one action, got %d %v", len(set), set)
	}
	if slices.Contains(names, step.Name) {
		return fmt.Errorf("a step named %q comes before", step.Name)
	}
	if _, err := words(step.Say, noFacts(names)); err != nil {
		return err
	}
	switch {
	case step.Run != nil:
		return oneOf("show", cmp.Or(step.Run.Show, showAll), showAll, showBegin, showNothing)
	case step.Create != nil:
		return p.checkCreate(step.Create)
	case step.Delete != nil:
		return p.checkNames(step.Delete.PodGroups, step.Delete.Objects)
	case step.Patch != nil:
		return p.checkNames(step.Patch.PodGroups, step.Patch.Objects)
	case step.Finish != nil:
		return oneOf("phase", step.Finish.Phase, string(v1.PodSucceeded), string(v1.PodFailed))
	case step.Scheduler != "":
		return oneOf("scheduler", step.Scheduler, "start", "stop", "kill", "restart", "interrupted", "freeze", "thaw", "ended", "handedOver")
	case step.Controller != "":
		return oneOf("controller", step.Controller, "start", "kill", "restart")
	case step.APIServer != "":
		return oneOf("apiServer", step.APIServer, "start", "kill", "restart", "interrupted")
	case step.Interrupt != nil:
		if step.Interrupt.Freeze {
			return oneOf("kill", step.Interrupt.Kill, victimScheduler)
		}
		return oneOf("kill", step.Interrupt.Kill, victimScheduler, victimAPIServer)
	case step.Expect != nil:
		return p.checkExpect(step.Expect, names)
	}
	return nil
}

func oneOf(field, value string, values ...string) error {
	if !slices.Contains(values, value) {
		return fmt.Errorf("%s is %q, want one of %s", field, value, strings.Join(values, ", "))
	}
	return nil
}

func (p *plan) checkCreate(c *Create) error {
	for _, name := range c.Nodes {
		if pool := p.pools[name]; pool == nil || !pool.Later {
			return fmt.Errorf("creating nodes %q: there is no such pool that comes later", name)
		}
	}
	for _, name := range c.Gangs {
		if p.gangs[fullName(name)] == nil {
			return fmt.Errorf("creating gang %q: it is not defined", name)
		}
	}
	for _, pattern := range c.Pods {
		if len(p.podsNamed([]string{pattern})) == 0 {
			return fmt.Errorf("creating pods %q: none is defined", pattern)
		}
	}
	return p.checkNames(c.PodGroups, c.Objects)
}

// checkNames checks names of PodGroups and references to objects.
func (p *plan) checkNames(groups, objects []string) error {
	for _, name := range groups {
		if p.groups[fullName(name)] == nil {
			return fmt.Errorf("finding PodGroup %q: no gang of that name has one", name)
		}
	}
	for _, ref := range objects {
		if p.objects[ref] == nil {
			return fmt.Errorf("finding object %q: it is not defined", ref)
		}
	}
	return nil
}

func (p *plan) checkExpect(e *Expect, names []string) error {
	for _, pattern := range slices.Concat(keys(e.Bound), keys(e.Whole)) {
		if len(p.gangsNamed(pattern)) == 0 {
			return fmt.Errorf("expecting gang %q: it is not defined", pattern)
		}
	}
	for i, x := range e.Placement {
		if (x.Gang == "") == (len(x.Pods) == 0) {
			return fmt.Errorf("expecting placement[%d]: want either gang or pods", i)
		}
		if x.Gang != "" && p.gangs[fullName(x.Gang)] == nil {
			return fmt.Errorf("expecting placement of gang %q: it is not defined", x.Gang)
		}
	}
	since := []string{}
	for _, x := range e.Writes {
		since = append(since, x.Since)
	}
	if e.Elapsed != nil {
		since = append(since, e.Elapsed.Since)
	}
	for _, name := range since {
		if name != "" && !slices.Contains(names, name) {
			return fmt.Errorf("expecting since step %q: no step before has that name", name)
		}
	}
	for _, x := range e.Pods {
		if len(x.Pods) == 0 {
			return fmt.Errorf("expecting pods: want names")
		}
	}
	return checkGlobs(e)
}

// checkGlobs finds names with a broken [ ] in them, which would match nothing.
func checkGlobs(e *Expect) error {
	patterns := slices.Concat(keys(e.Bound), keys(e.Whole), keys(e.Evictions), e.NeverBound, e.SameNodesAsStock)
	for _, x := range e.Pods {
		patterns = slices.Concat(patterns, x.Pods, x.Nodes, x.Nominated)
	}
	for _, x := range e.Placement {
		patterns = append(patterns, x.Pods...)
	}
	for _, x := range e.Events {
		patterns = append(patterns, x.Name)
	}
	for _, x := range e.BoundOrder {
		patterns = slices.Concat(patterns, x.First, x.Then)
	}
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("reading the name %q: %w", pattern, err)
		}
	}
	return nil
}

func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
