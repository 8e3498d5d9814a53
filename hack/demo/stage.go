package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/test/localcluster"
)

const (
	rackCount, nodesPerRack, gpusPerNode = 4, 4, 8

	scheduler  = "lockstep-scheduler"
	controller = "lockstep-controller"

	// patience is how long a step may take. On an idle machine none takes more than ten seconds.
	patience = time.Minute
	// readyPoll is how often a scheduler that starts is asked whether it is ready.
	readyPoll = 50 * time.Millisecond
)

var binDir = filepath.Join(".local", "bin")

// stage is what the story is played on: a cluster, what runs in it, and a watch on it.
type stage struct {
	cluster *localcluster.Cluster
	version string
	// procs are the scheduler and the controller.
	procs []*localcluster.Process
	seen  *sightings
	stop  context.CancelFunc
}

// racks are the nodes, named after their rack: r2-n1.
func racks() []localcluster.NodePool {
	pools := make([]localcluster.NodePool, rackCount)
	for i := range pools {
		rack := "r" + strconv.Itoa(i)
		pools[i] = localcluster.NodePool{
			Count: nodesPerRack, NamePrefix: rack + "-n", Labels: map[string]string{localcluster.LabelRack: rack},
			Allocatable: v1.ResourceList{localcluster.ResourceGPU: *resource.NewQuantity(gpusPerNode, resource.DecimalSI)},
		}
	}
	return pools
}

// setUp starts the cluster, the scheduler and the controller.
func setUp(ctx context.Context) (*stage, error) {
	for _, name := range []string{scheduler, controller} {
		if _, err := os.Stat(filepath.Join("bin", name)); err != nil {
			return nil, fmt.Errorf("finding %s (make build makes it): %w", name, err)
		}
	}
	c, err := up(ctx)
	if err != nil {
		return nil, err
	}
	s := &stage{cluster: c}
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.whereToLook())
	}
	return s, nil
}

// start starts what runs in the cluster, and the watch.
func (s *stage) start(ctx context.Context) error {
	version, err := s.cluster.Clientset().Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the version of Kubernetes: %w", err)
	}
	s.version = version.GitVersion
	port, err := localcluster.FreePort()
	if err != nil {
		return err
	}
	first, err := s.startScheduler(port)
	if err != nil {
		return err
	}
	args := []string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--kubeconfig=" + s.cluster.Kubeconfig()}
	second, err := s.cluster.Start(controller, filepath.Join("bin", controller), args, "")
	if err != nil {
		return err
	}
	s.procs = []*localcluster.Process{first, second}
	if err := s.awaitReady(ctx, port); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	s.stop = stop
	s.seen, err = watch(watching, s.cluster)
	return err
}

// startScheduler starts the scheduler, in its default configuration unless more arguments say otherwise.
func (s *stage) startScheduler(port int, more ...string) (*localcluster.Process, error) {
	args := []string{"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--v=3", "--kubeconfig=" + s.cluster.Kubeconfig()}
	return s.cluster.Start(scheduler, filepath.Join("bin", scheduler), append(args, more...), "")
}

// awaitReady returns when the scheduler has seen all nodes and takes pods.
func (s *stage) awaitReady(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready within %s", patience))
	defer cancel()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its certificate is made anew at each start
	defer client.CloseIdleConnections()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/readyz", port), nil)
		if err != nil {
			return fmt.Errorf("asking the scheduler whether it is ready: %w", err)
		}
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.procs[0].Done():
			return s.died(s.procs[0])
		case <-ctx.Done():
			return fmt.Errorf("starting the scheduler: %w", context.Cause(ctx))
		case <-time.After(readyPoll):
		}
	}
}

func (s *stage) stopWatching() { s.stop() }

// kubeconfig is its path from the top of the repository.
func (s *stage) kubeconfig() string { return fromHere(s.cluster.Kubeconfig()) }

// fromHere is a path relative to the working directory.
func fromHere(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(here, path); err == nil {
		return short
	}
	return path
}

// whereToLook ends the report of a step that failed.
func (s *stage) whereToLook() string {
	return fmt.Sprintf("The scheduler's log: %s\nThe cluster is left as it is: export KUBECONFIG=%s\nTo remove it: make down NAME=%s",
		fromHere(filepath.Join(s.cluster.LogDir(), scheduler+".log")), s.kubeconfig(), clusterName)
}

// await waits until a test of what is seen holds. The test also words what it sees.
func (s *stage) await(ctx context.Context, expected string, test func(*sightings) (saw string, ok bool)) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		saw, ok, changed := s.seen.test(test)
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-s.procs[0].Done():
			return s.died(s.procs[0])
		case <-s.procs[1].Done():
			return s.died(s.procs[1])
		case <-late.C:
			return fmt.Errorf("expected within %s: %s\nSeen: %s", patience, expected, saw)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *stage) died(p *localcluster.Process) error {
	return fmt.Errorf("expected %s to run until the cluster is taken down\nSeen: it has ended, %w; its log: %s",
		p.Name, cmp.Or(p.Err(), errors.New("exit status 0")), fromHere(p.LogFile))
}

// kubectl runs kubectl and shows the command and what it printed.
func (s *stage) kubectl(ctx context.Context, p *printer, args ...string) error {
	out, err := s.run(ctx, p, args)
	p.output(out)
	return err
}

// kubectlBegin shows no more than the first line of what kubectl printed.
func (s *stage) kubectlBegin(ctx context.Context, p *printer, args ...string) error {
	out, err := s.run(ctx, p, args)
	if lines := wrap(out, ""); len(lines) > 1 {
		out = lines[0] + " ..."
	}
	p.output(out)
	return err
}

// quietly runs kubectl and shows the command only.
func (s *stage) quietly(ctx context.Context, p *printer, args ...string) error {
	_, err := s.run(ctx, p, args)
	return err
}

func (s *stage) run(ctx context.Context, p *printer, args []string) (string, error) {
	p.code(command(args)...)
	return s.cluster.Kubectl(ctx, args...)
}

// apply applies a file of the demo, and shows the command only.
func (s *stage) apply(ctx context.Context, p *printer, file string) error {
	return s.quietly(ctx, p, "apply", "-f", filepath.Join("hack", "demo", file))
}

// command is a call of kubectl as one types it, on two lines where it is long.
func command(args []string) []string {
	line := "$ kubectl " + shell(args)
	if at := strings.LastIndex(line, " -o "); len(line) > width-len(codeIndent) && at > 0 {
		return []string{line[:at] + " \\", "   " + line[at:]}
	}
	return []string{line}
}

// shell writes a command as one types it.
func shell(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		option, value, ok := strings.Cut(arg, "=")
		switch {
		case !strings.ContainsAny(arg, "{}[]\"'\\ *?@()$&|<>;"):
			quoted[i] = arg
		case ok:
			quoted[i] = option + "=" + quote(value)
		default:
			quoted[i] = quote(arg)
		}
	}
	return strings.Join(quoted, " ")
}

func quote(arg string) string { return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'" }
