package scenario

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// Narrator shows people what happens in a scenario while it runs.
type Narrator interface {
	// Up is called when everything exists that the steps begin with.
	Up(c *localcluster.Cluster)
	// Title and Say are called with the texts of the steps, before they are taken.
	Title(text string)
	Say(text string)
	// Command is called with a command line before it is run, Output with what people are to see of its output, and
	// whether that is the first line only.
	Command(line string)
	Output(text string, begin bool)
}

// silence shows nothing.
type silence struct{}

func (silence) Up(*localcluster.Cluster) {}
func (silence) Title(string)             {}
func (silence) Say(string)               {}
func (silence) Command(string)           {}
func (silence) Output(string, bool)      {}

// How much of a command's output people see.
const (
	showAll     = "all"
	showBegin   = "begin"
	showNothing = "nothing"
)

// words makes text from that of a step. What steps may ask for in it:
//
//	{{within "a/*" "b/*"}}         how far apart the first and the last binding of these pods were
//	{{after "STEP" "a/*"}}         how long after the begin of that step the last of these pods was bound
//	{{domains "LABEL" "a/*"}}      where these pods are, by a label of nodes
func words(text string, facts template.FuncMap) (string, error) {
	parsed, err := template.New("say").Funcs(facts).Parse(text)
	if err != nil {
		return "", fmt.Errorf("reading what is said: %w", err)
	}
	var out strings.Builder
	if err := parsed.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("finding the words for what is said: %w", err)
	}
	return out.String(), nil
}

// noFacts returns functions in place of the facts while nothing has happened. They check the names of steps.
func noFacts(steps []string) template.FuncMap {
	return template.FuncMap{
		"within":  func(...string) string { return "" },
		"domains": func(string, ...string) string { return "" },
		"after": func(step string, _ ...string) (string, error) {
			if !slices.Contains(steps, step) {
				return "", fmt.Errorf("no step before is named %q", step)
			}
			return "", nil
		},
	}
}

// facts returns the functions for what was seen until now.
func (r *run) facts() template.FuncMap {
	return template.FuncMap{
		"within": func(pods ...string) string {
			first, last := r.bindings(pods)
			return span(last.Sub(first))
		},
		"after": func(step string, pods ...string) string {
			_, last := r.bindings(pods)
			return span(last.Sub(r.steps[step]))
		},
		"domains": func(label string, pods ...string) string {
			r.rec.Lock()
			defer r.rec.Unlock()
			return strings.Join(keys(r.domains(label, func(p *podRecord) bool { return globAny(pods, p.name) })), ", ")
		},
	}
}

// bindings returns when the first and the last of the pods that match were bound.
func (r *run) bindings(pods []string) (first, last time.Time) {
	r.rec.Lock()
	defer r.rec.Unlock()
	for _, p := range r.rec.live(func(p *podRecord) bool { return p.bound() && globAny(pods, p.name) }) {
		if first.IsZero() || p.boundAt.Before(first) {
			first = p.boundAt
		}
		last = latest(last, p.boundAt)
	}
	return first, last
}

// span words a time, rounded up: in milliseconds below one second.
func span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", max(0, d-1)/time.Millisecond+1)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// tell gives the texts of a step to the narrator.
func (r *run) tell(step Step) error {
	if step.Title != "" {
		r.narrator.Title(step.Title)
	}
	if step.Say == "" {
		return nil
	}
	text, err := words(step.Say, r.facts())
	if err != nil {
		return err
	}
	r.narrator.Say(text)
	return nil
}

// command runs a command line.
func (r *run) command(ctx context.Context, c *Run) error {
	if len(c.Ends) > 0 {
		r.rec.mark(r.liveUIDs(c.Ends)...)
	}
	r.narrator.Command(strings.TrimSpace(c.Command))
	out, err := r.site.cluster.Shell(ctx, c.Command, r.variables()...)
	if err != nil {
		return err
	}
	r.output = out
	if c.Show != showNothing {
		r.narrator.Output(out, c.Show == showBegin)
	}
	return nil
}

// configure makes the scheduler run with the configuration in a file from now on.
func (r *run) configure(ctx context.Context, file string) error {
	if binary, err := filepath.Rel(r.Fleet.root, r.scheduler.binary); err == nil {
		r.narrator.Command(binary + " --config=" + file)
	}
	if err := r.scheduler.stop(ctx); err != nil {
		return err
	}
	spec := r.scenario.Scheduler
	spec.Config, spec.ConfigFile = nil, file
	if err := r.scheduler.configure(&spec, r.stock, r.Fleet.root, r.Scheduler); err != nil {
		return err
	}
	return r.scheduler.start(ctx)
}
