package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const (
	// runTimeout bounds a scenario, without the start of its control plane.
	runTimeout = 5 * time.Minute
	// endTimeout bounds stopping its processes and cleaning up.
	endTimeout = 30 * time.Second
)

// Runner runs scenarios.
type Runner struct {
	Fleet *Fleet
	// Scheduler and Controller are the binaries under test. The name of the scheduler's file is its name towards the
	// API server.
	Scheduler, Controller string
	// Programs are the binaries of the programs that scenarios name.
	Programs map[string]string
	// Variables are for the commands of scenarios, and for the arguments of programs.
	Variables map[string]string
	// Keep, if set, is the name of the control plane, in place of one that has it. It stays, with all that runs in it.
	Keep string
	// Forecaster, if set, is the binary of kubectl gang, which is asked before pods are created what they will come to.
	Forecaster string
	// Slower, if set, is how many times as long everything may take.
	Slower int
	// Narrator, if set, is called with what happens.
	Narrator Narrator
}

// patience returns how long something may take.
func (r *Runner) patience(within time.Duration) time.Duration {
	return within * time.Duration(max(1, r.Slower))
}

// run is one scenario while it runs.
type run struct {
	*Runner
	narrator Narrator
	scenario *Scenario
	plan     *plan
	// stock: the stock scheduler runs. rehearsal: only to see where it puts pods.
	stock, rehearsal bool
	// stockNodes is the outcome of the rehearsal: nodes by name of the pod.
	stockNodes map[string]string
	// applied is when files were applied last; they may have CRDs.
	applied time.Time

	site       *site
	dir        string
	rec        *recorder
	audit      *auditLog
	scheduler  *daemon
	standby    *daemon // a second replica of the scheduler, or nil
	controller *daemon
	programs   map[string]*daemon
	output     string // of the last command
	gate       *gate
	proxy      *proxy
	armed      *interrupt
	died       chan error

	begin      time.Time
	steps      map[string]time.Time // begin of named steps
	lastAction time.Time
	rounds     int
	// current is the text of the step that is taken, and next the one after it.
	current   string
	next      *Step
	outlook   *outlook // nil for none that is open
	forecasts []Forecast
}

// Run runs a scenario and reports what came of it. It never returns nil.
func (r *Runner) Run(ctx context.Context, s *Scenario) *Report {
	begin := time.Now()
	report := r.runAll(ctx, s)
	report.Scenario, report.Took = s.Name, time.Since(begin)
	return report
}

func (r *Runner) runAll(ctx context.Context, s *Scenario) *Report {
	nodes := map[string]string{}
	for _, step := range s.Steps {
		if step.Expect == nil || len(step.Expect.SameNodesAsStock) == 0 {
			continue
		}
		rehearsal := &run{Runner: r, narrator: silence{}, scenario: s, stock: true, rehearsal: true, stockNodes: nodes}
		if report := rehearsal.do(ctx); report.Failed() {
			report.Step += " (with the stock scheduler, to see where it puts pods)"
			return report
		}
		break
	}
	told := r.Narrator
	if told == nil {
		told = silence{}
	}
	return (&run{Runner: r, narrator: told, scenario: s, stock: s.Scheduler.Stock, stockNodes: nodes}).do(ctx)
}

// do runs the scenario once, on a control plane of its own.
func (r *run) do(ctx context.Context) *Report {
	r.dir = filepath.Join(r.Fleet.dir(), cmp.Or(r.Keep, r.scenario.Name))
	if r.rehearsal {
		r.dir += "-stock"
	}
	report := &Report{Dir: r.dir}
	fail := func(err error) *Report {
		report.Failures = append(report.Failures, err.Error())
		return report
	}
	if err := errors.Join(os.RemoveAll(r.dir), os.MkdirAll(r.dir, 0o755)); err != nil {
		return fail(fmt.Errorf("making the folder of the scenario: %w", err))
	}
	var err error
	if r.plan, err = newPlan(r.scenario); err != nil {
		return fail(err)
	}
	if r.Keep != "" {
		r.site, err = r.Fleet.kept(ctx, r.scenario.Cluster, r.Keep)
	} else {
		r.site, err = r.Fleet.take(ctx, r.scenario.Cluster)
	}
	if err != nil {
		return fail(err)
	}
	r.play(ctx, report)
	if err := report.save(); err != nil {
		fail(err)
	}
	if r.Keep != "" {
		return report
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := r.Fleet.giveBack(ctx, r.site); err != nil {
		fail(err)
	}
	return report
}

// play sets up, takes the steps, and stops what it started.
func (r *run) play(ctx context.Context, report *Report) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("the scenario took more than %s", runTimeout))
	defer cancel()
	err := r.setUp(ctx)
	step := "the set-up"
	if err == nil {
		r.narrator.Up(r.site.cluster)
	}
	for i := 0; err == nil && i < len(r.scenario.Steps); i++ {
		step, r.next = stepText(i, r.scenario.Steps[i]), nil
		if r.current = step; i+1 < len(r.scenario.Steps) {
			r.next = &r.scenario.Steps[i+1]
		}
		err = r.step(ctx, step, r.scenario.Steps[i])
	}
	if err == nil {
		step = "the end of the scenario"
		err = r.checkEnd()
	}
	if err != nil {
		report.Step = step
		var f failures
		if errors.As(err, &f) {
			report.Failures = f
		} else {
			report.Failures = []string{err.Error()}
		}
	}
	for _, d := range r.daemons() {
		if d != nil {
			report.Tails = append(report.Tails, Tail{Of: "the log of the " + d.name, Lines: d.tail()})
		}
	}
	if r.output != "" {
		report.Tails = append(report.Tails, Tail{Of: "what the last command wrote", Lines: lastLines(r.output)})
	}
	report.Forecasts = r.forecasts
	if err := r.tearDown(context.WithoutCancel(ctx)); err != nil {
		report.Failures = append(report.Failures, err.Error())
	}
	if r.rec != nil {
		report.Timeline = r.rec.timeline
	}
}

// setUp makes what is there before the first step. The recorder and the nodes come first, so that the
// scheduler finds all of them when it starts.
func (r *run) setUp(ctx context.Context) error {
	var err error
	if r.audit, err = newAuditLog(r.site.audit); err != nil {
		return err
	}
	r.begin, r.steps, r.died = time.Now(), map[string]time.Time{}, make(chan error, 8)
	r.lastAction, r.programs = r.begin, map[string]*daemon{}
	r.rec = newRecorder(r.plan)
	if err := r.rec.start(ctx, r.site.cluster.Clientset(), r.site.client); err != nil {
		return err
	}
	if err := r.createSetting(ctx); err != nil {
		return err
	}
	if err := r.prepareDaemons(ctx); err != nil {
		return err
	}
	for _, step := range r.scenario.Steps {
		if r.gate == nil && (step.Interrupt != nil || step.Bindings != nil) {
			if r.gate, err = openGate(ctx, r.site.cluster.Clientset(), r.rec); err != nil {
				return err
			}
		}
	}
	if !r.scenario.Scheduler.Stopped {
		if err := r.startSchedulers(ctx); err != nil {
			return err
		}
	}
	if r.controller != nil {
		return r.controller.start(ctx)
	}
	return nil
}

// newDaemon makes a program that is not configured yet. It may do what its service account may.
func (r *run) newDaemon(account string) (*daemon, error) {
	d := &daemon{cluster: r.site.cluster, rec: r.rec, dir: r.dir, died: r.died}
	switch {
	case r.proxy != nil:
		d.kubeconfig = r.proxy.kubeconfig
		return d, nil
	case r.stock:
		d.kubeconfig = r.site.cluster.Kubeconfig()
		return d, nil
	}
	var err error
	d.kubeconfig, err = r.site.cluster.KubeconfigFor(account)
	return d, err
}

// daemons returns all programs of the test, those of others first; nil for those that it does not have.
func (r *run) daemons() []*daemon {
	var all []*daemon
	for _, name := range slices.Sorted(maps.Keys(r.programs)) {
		all = append(all, r.programs[name])
	}
	return append(all, r.controller, r.scheduler, r.standby)
}

func (r *run) prepareDaemons(ctx context.Context) error {
	for _, step := range r.scenario.Steps {
		if step.Network != nil && r.proxy == nil {
			config := r.site.cluster.RESTConfig()
			config.Impersonate.UserName = localcluster.AccountName(schedulerAccount)
			var err error
			if r.proxy, err = openProxy(config, r.rec, filepath.Join(r.dir, "proxy.kubeconfig")); err != nil {
				return err
			}
		}
	}
	// The steps of a scenario may run it.
	if _, err := r.site.cluster.KubeconfigFor(deschedulerAccount); err != nil {
		return err
	}
	for i := range r.scenario.Programs {
		if err := r.prepareProgram(&r.scenario.Programs[i]); err != nil {
			return err
		}
	}
	var err error
	if r.scheduler, err = r.newDaemon(schedulerAccount); err != nil {
		return err
	}
	if err := r.scheduler.configure(&r.scenario.Scheduler, r.stock, r.Fleet.root, r.Scheduler); err != nil {
		return err
	}
	r.rec.setDown(victimScheduler, true)
	if r.scenario.Scheduler.Standby {
		if err := r.prepareStandby(ctx); err != nil {
			return err
		}
	}
	if r.scenario.Controller && !r.stock {
		if r.controller, err = r.newDaemon(controllerAccount); err != nil {
			return err
		}
		return r.controller.configureController(r.Controller, r.scheduler.config, r.scenario.ControllerArgs)
	}
	return nil
}

// createSetting creates namespaces, priority classes and nodes.
func (r *run) createSetting(ctx context.Context) error {
	client := r.site.cluster.Clientset()
	for _, n := range append(r.plan.namespaces(r.scenario), Namespace{Name: probeNamespace}) {
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", n.Name, err)
		}
	}
	probe := PriorityClass{Name: probeClass, Value: probePriority, PreemptionPolicy: ptr.To(v1.PreemptNever)}
	for _, c := range append([]PriorityClass{probe}, r.scenario.PriorityClasses...) {
		class := &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Value: c.Value, PreemptionPolicy: c.PreemptionPolicy,
		}
		if _, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating priority class %s: %w", c.Name, err)
		}
	}
	for i := range r.scenario.Nodes {
		if pool := &r.scenario.Nodes[i]; !pool.Later {
			if err := r.createPool(ctx, pool); err != nil {
				return err
			}
		}
	}
	return nil
}

// createPool creates nodes and waits until they are seen. Cordoned ones are for a moment not, which makes no difference
// before the scheduler runs.
func (r *run) createPool(ctx context.Context, pool *Nodes) error {
	count := max(pool.Count, 1)
	spread := func(int) map[string]string { return nil }
	if pool.Zones > 0 || pool.Racks > 0 {
		spread = localcluster.Topology(count, pool.Zones, pool.Racks)
	}
	err := r.site.cluster.AddNodes(ctx, localcluster.NodePool{
		Count: count, NamePrefix: pool.Name + "-", Labels: pool.Labels, Annotations: pool.Annotations, Allocatable: pool.Allocatable, Taints: pool.Taints,
		LabelsFor: func(i int) map[string]string {
			labels := map[string]string{}
			for key, value := range spread(i) {
				labels[key] = value
			}
			if i < len(pool.Each) {
				for key, value := range pool.Each[i] {
					labels[key] = value
				}
			}
			return labels
		},
	})
	if err != nil {
		return err
	}
	for i := 0; pool.Cordoned && i < count; i++ {
		name := fmt.Sprintf("%s-%d", pool.Name, i)
		_, err := r.site.client.Resource(nodesResource).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("cordoning node %s: %w", name, err)
		}
	}
	return r.rec.Wait(ctx, func() bool {
		for i := range count {
			if r.rec.nodes[fmt.Sprintf("%s-%d", pool.Name, i)] == nil {
				return false
			}
		}
		return true
	})
}

// checkEnd checks what has to hold after the last step.
func (r *run) checkEnd() error {
	if r.armed != nil {
		return errors.New("the interrupt that was armed never came; this scenario has not tested what it is for")
	}
	r.rec.Lock()
	defer r.rec.Unlock()
	v := r.rec.violations()
	if r.Fleet.Kubelets {
		v = append(v, r.rec.refusals()...)
	}
	if len(v) > 0 {
		return failures(v)
	}
	return nil
}

func (r *run) tearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	var errs []error
	for _, d := range r.daemons() {
		if d != nil && d.running() && r.Keep == "" {
			errs = append(errs, d.kill(ctx))
		}
	}
	if r.rec != nil {
		r.rec.stop()
	}
	if r.gate != nil {
		r.gate.close()
	}
	if r.proxy != nil {
		errs = append(errs, r.proxy.close())
	}
	return errors.Join(errs...)
}

// failures is an error of several lines: what an expectation found.
type failures []string

func (f failures) Error() string { return fmt.Sprintf("%d expectations do not hold", len(f)) }
