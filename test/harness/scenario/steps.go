package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stepWidth bounds the text of a step.
const stepWidth = 240

// unquote makes JSON easier to read.
var unquote = strings.NewReplacer(`\"`, `"`, `"`, "", `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// stepText returns the text of a step in reports.
func stepText(i int, step Step) string {
	name := step.Name
	step.Name, step.Title, step.Say = "", "", ""
	text := unquote.Replace(mustJSON(step))
	if runes := []rune(text); len(runes) > stepWidth {
		text = string(runes[:stepWidth]) + "..."
	}
	if name != "" {
		text = fmt.Sprintf("(%s) %s", name, text)
	}
	return fmt.Sprintf("step %d %s", i, text)
}

// step takes one step. An expectation that does not hold is returned as failures.
func (r *run) step(ctx context.Context, text string, step Step) error {
	r.rec.note(KindStep, "%s", text)
	now := time.Now()
	if step.Name != "" {
		r.steps[step.Name] = now
	}
	if err := r.tell(step); err != nil {
		return err
	}
	if step.Expect != nil {
		if r.rehearsal {
			return r.rehearse(ctx, step.Expect)
		}
		if err := r.expect(ctx, step.Expect); err != nil {
			return err
		}
		r.compare(ctx)
		return nil
	}
	r.outlook = nil
	r.lastAction = now
	switch {
	case step.Create != nil:
		return r.create(ctx, step.Create)
	case step.Delete != nil:
		return r.delete(ctx, step.Delete)
	case step.Patch != nil:
		return r.patch(ctx, step.Patch)
	case step.Finish != nil:
		return r.finish(ctx, step.Finish)
	case len(step.Apply) > 0:
		return r.apply(ctx, step.Apply)
	case step.Run != nil:
		return r.command(ctx, step.Run)
	case step.Configure != "":
		return r.configure(ctx, step.Configure)
	case step.Pause != nil:
		return r.pause(ctx, step.Pause.Duration)
	case step.Scheduler != "":
		return r.stepScheduler(ctx, step.Scheduler)
	case step.Controller != "":
		return r.controller.take(ctx, step.Controller)
	case step.Program != nil:
		return r.programs[step.Program.Name].take(ctx, step.Program.Do)
	case step.APIServer != "":
		return r.stepAPIServer(ctx, step.APIServer)
	case step.Interrupt != nil:
		return r.arm(step.Interrupt)
	case step.Network != nil:
		r.proxy.set(step.Network)
		return nil
	default:
		r.gate.set(step.Bindings)
		return nil
	}
}

// pause lets time pass, in which the invariants have to hold.
func (r *run) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-r.died:
		return err
	case <-time.After(d):
	}
	r.rec.Lock()
	defer r.rec.Unlock()
	if v := r.rec.violations(); len(v) > 0 {
		return failures(v)
	}
	return nil
}

// fired waits for the interrupt of a victim, if one is armed. Until the victim starts again, bindings
// are refused.
func (r *run) fired(ctx context.Context, victim string) error {
	i := r.armed
	if i == nil || i.Kill != victim {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, defaultWithin)
	defer cancel()
	select {
	case <-i.fired:
		return i.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the interrupt: %w", context.Cause(ctx))
	}
}

// disarm ends the interrupt of a victim that starts again.
func (r *run) disarm(victim string) {
	if r.armed != nil && r.armed.Kill == victim {
		r.armed = nil
		r.gate.disarm()
	}
}

func (r *run) stepScheduler(ctx context.Context, action string) error {
	switch action {
	case "stop":
		return r.scheduler.stop(ctx)
	case "kill":
		return r.scheduler.kill(ctx)
	case "interrupted":
		return r.fired(ctx, victimScheduler)
	case "freeze":
		return r.scheduler.freeze(ctx)
	case "thaw":
		return r.scheduler.thaw()
	case "ended":
		return r.scheduler.waitEnded(ctx)
	case "handedOver":
		return r.handedOver(ctx)
	case "restart":
		if err := r.scheduler.kill(ctx); err != nil {
			return err
		}
	default:
		if err := r.fired(ctx, victimScheduler); err != nil {
			return err
		}
		r.disarm(victimScheduler)
	}
	return r.scheduler.start(ctx)
}

func (r *run) stepAPIServer(ctx context.Context, action string) error {
	switch action {
	case "kill":
		return r.killAPIServer(ctx)
	case "interrupted":
		return r.fired(ctx, victimAPIServer)
	case "restart":
		if err := r.killAPIServer(ctx); err != nil {
			return err
		}
	default:
		if err := r.fired(ctx, victimAPIServer); err != nil {
			return err
		}
		r.disarm(victimAPIServer)
	}
	r.rec.Lock()
	lists := r.rec.lists[podsResource]
	r.rec.Unlock()
	if err := r.site.cluster.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := r.rec.Wait(ctx, func() bool { return r.rec.lists[podsResource] > lists }); err != nil {
		return fmt.Errorf("waiting to see pods again: %w", err)
	}
	r.rec.setDown(victimAPIServer, false)
	return nil
}

func (r *run) killAPIServer(ctx context.Context) error {
	r.rec.setDown(victimAPIServer, true)
	return r.site.cluster.KillAPIServer(ctx)
}

func (r *run) arm(spec *Interrupt) error {
	if r.armed != nil {
		return errors.New("arming an interrupt: one is armed already")
	}
	i := &interrupt{Interrupt: *spec, kill: r.scheduler.kill}
	switch {
	case spec.Kill == victimAPIServer:
		i.kill = r.killAPIServer
	case spec.Freeze:
		i.kill = r.scheduler.freeze
	}
	r.armed = i
	r.gate.arm(i)
	return nil
}

func (r *run) apply(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if err := r.site.cluster.Apply(ctx, r.Fleet.root+"/"+path); err != nil {
			return err
		}
	}
	r.applied = time.Now()
	return nil
}

// patch merges into everything that the step names.
func (r *run) patch(ctx context.Context, p *Patch) error {
	data, err := json.Marshal(p.Merge)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	var subresources []string
	if p.Status {
		subresources = []string{"status"}
	}
	for _, name := range r.podsNamed(p.Pods) {
		pods, base := r.podClient(name)
		if _, err := pods.Patch(ctx, base, types.MergePatchType, data, metav1.PatchOptions{}, subresources...); err != nil {
			return fmt.Errorf("patching pod %s: %w", name, err)
		}
	}
	for _, name := range p.Nodes {
		if _, err := r.site.client.Resource(nodesResource).Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...); err != nil {
			return fmt.Errorf("patching node %s: %w", name, err)
		}
	}
	objects, err := r.objectsOf(p.PodGroups, p.Objects)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if _, err := o.client.Patch(ctx, o.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, subresources...); err != nil {
			return fmt.Errorf("patching %s: %w", o.ref(), err)
		}
	}
	return nil
}

// startWithin is how long a pod on a node may take to run.
const startWithin = 5 * time.Second

// finish ends pods as if their containers had ended. It awaits that those on nodes run: kwok would overwrite the phase.
func (r *run) finish(ctx context.Context, f *Finish) error {
	if len(r.podsNamed(f.Pods)) == 0 {
		return fmt.Errorf("finishing pods %v: there are none", f.Pods)
	}
	starting, cancel := context.WithTimeout(ctx, r.patience(startWithin))
	defer cancel()
	_ = r.rec.Wait(starting, func() bool { // in vain for a pod that its node does not run
		return len(r.rec.live(func(p *podRecord) bool {
			return globAny(f.Pods, p.name) && p.pod.Spec.NodeName != "" && p.pod.Status.Phase == v1.PodPending
		})) == 0
	})
	if err := r.patch(ctx, &Patch{Pods: f.Pods, Status: true, Merge: map[string]any{"status": map[string]any{"phase": f.Phase}}}); err != nil {
		return err
	}
	return r.rec.Wait(ctx, func() bool {
		return len(r.rec.live(func(p *podRecord) bool {
			return globAny(f.Pods, p.name) && p.pod.Status.Phase != v1.PodPhase(f.Phase)
		})) == 0
	})
}

// podsNamed returns the names of the pods that are there and match.
func (r *run) podsNamed(patterns []string) []string {
	r.rec.Lock()
	defer r.rec.Unlock()
	names := map[string]bool{}
	for _, p := range r.rec.live(func(p *podRecord) bool { return globAny(patterns, p.name) }) {
		names[p.name] = true
	}
	return keys(names)
}
