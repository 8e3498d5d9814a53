package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// logTail is how many lines of a log are in a report.
const logTail = 15

// daemon is a program of the test, such as the scheduler, that runs, dies and runs again.
type daemon struct {
	name    string // in the timeline and of its logs
	cluster *localcluster.Cluster
	rec     *recorder
	binary  string
	args    []string
	config  string // of the scheduler; empty for that of the binary
	ready   string // URL that answers 200 when it is ready
	dir     string
	// kubeconfig leads to the API server.
	kubeconfig string
	// died gets an error when it ends by itself, unless it was frozen and thawed.
	died chan<- error

	mu      sync.Mutex
	starts  int
	thawed  *localcluster.Process
	process *localcluster.Process // nil while it is down
}

// start starts it and returns when it is ready.
func (d *daemon) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process != nil {
		return fmt.Errorf("starting the %s: it runs already", d.name)
	}
	d.starts++
	process, err := d.cluster.Start(d.name, d.binary, d.args, d.log())
	if err != nil {
		return err
	}
	d.process = process
	go func() {
		<-process.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.process == process {
			d.process = nil
			if d.thawed == process {
				d.rec.note(KindNote, "%s has ended by itself: %v", d.name, process.Err())
				return
			}
			d.died <- fmt.Errorf("running the %s: it ended by itself: %w", d.name, process.Err())
		}
	}()
	if d.ready != "" {
		if err := process.WaitReady(ctx, d.ready); err != nil {
			return err
		}
	}
	d.rec.setDown(d.name, false)
	return nil
}

// log returns the file of the current or last run.
func (d *daemon) log() string {
	return filepath.Join(d.dir, fmt.Sprintf("%s-%d.log", d.name, max(d.starts, 1)))
}

// kill ends it as a crash would; stop asks it to end.
func (d *daemon) kill(context.Context) error {
	process, err := d.takeDown()
	if err != nil {
		return err
	}
	return process.Kill()
}

func (d *daemon) stop(ctx context.Context) error {
	process, err := d.takeDown()
	if err != nil {
		return err
	}
	return process.Stop(ctx)
}

// take starts it, kills it, or restarts it, which is both.
func (d *daemon) take(ctx context.Context, action string) error {
	if action != "start" {
		if err := d.kill(ctx); err != nil || action == "kill" {
			return err
		}
	}
	return d.start(ctx)
}

func (d *daemon) takeDown() (*localcluster.Process, error) {
	d.mu.Lock()
	process := d.process
	d.process = nil
	d.mu.Unlock()
	if process == nil {
		return nil, fmt.Errorf("ending the %s: it does not run", d.name)
	}
	d.rec.setDown(d.name, true)
	return process, nil
}

// noise is what every start writes.
var noise = regexp.MustCompile(`^\t|^ >$|Caches populated|Unexpected EOF during watch|sched-handler-sync|^[IWE]\d+ [^ ]+ +\d+ (authentication|authorization|options|framework|configfile|flags|cert|serving|tlsconfig|requestheader|shared_informer|dynamic_\w+|configmap_cafile_content|secure_serving)\.go`)

// tail returns the last lines of the log that say something.
func (d *daemon) tail() string {
	d.mu.Lock()
	file := d.log()
	d.mu.Unlock()
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return lastLines(string(data))
}

// lastLines returns the last lines of a log that say something.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return noise.MatchString(line) })
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}

// configure makes d the scheduler of a scenario: the binary, or the stock scheduler.
func (d *daemon) configure(s *Scheduler, stock bool, root, binary string) error {
	port, err := localcluster.FreePort()
	if err != nil {
		return err
	}
	d.name, d.binary, d.ready = victimScheduler, binary, fmt.Sprintf("https://127.0.0.1:%d/readyz", port)
	config, err := s.config(root)
	if err != nil {
		return err
	}
	if stock {
		if d.binary, err = localcluster.Binary("kube-scheduler"); err != nil {
			return err
		}
		config = map[string]any{
			"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
			"profiles": []any{map[string]any{"schedulerName": DefaultScheduler}},
		}
	}
	d.args = []string{
		"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics", "--v=2",
	}
	if config == nil {
		d.args = append(d.args, "--kubeconfig="+d.kubeconfig)
	} else if err := d.writeConfig(config); err != nil {
		return err
	}
	if !stock {
		d.args = append(d.args, s.Args...)
	}
	return nil
}

// config returns the configuration, or nil for that of the binary.
func (s *Scheduler) config(root string) (map[string]any, error) {
	if s.ConfigFile == "" {
		return s.Config, nil
	}
	data, err := os.ReadFile(filepath.Join(root, s.ConfigFile))
	if err != nil {
		return nil, fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	return config, nil
}

// writeConfig adds the address of the cluster, since with a configuration the flag is ignored.
func (d *daemon) writeConfig(config map[string]any) error {
	config = merge(map[string]any{}, config)
	config = merge(config, map[string]any{"clientConnection": map[string]any{"kubeconfig": d.kubeconfig}})
	data, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("encoding the scheduler's configuration: %w", err)
	}
	d.config = filepath.Join(d.dir, "scheduler-config.yaml")
	if err := os.WriteFile(d.config, data, 0o644); err != nil {
		return fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	d.args = append(d.args, "--config="+d.config)
	return nil
}

// configureController makes d the controller, which reads the scheduler's configuration if there
// is one, and has further flags.
func (d *daemon) configureController(binary, schedulerConfig string, args []string) error {
	port, err := localcluster.FreePort()
	if err != nil {
		return err
	}
	d.name, d.binary, d.ready = "controller", binary, fmt.Sprintf("http://127.0.0.1:%d/readyz", port)
	d.args = []string{
		"--kubeconfig=" + d.kubeconfig, "--metrics-bind-address=0",
		fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", port),
	}
	if schedulerConfig != "" {
		d.args = append(d.args, "--scheduler-config="+schedulerConfig)
	}
	d.args = append(d.args, args...)
	return nil
}

func (d *daemon) running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process != nil
}
