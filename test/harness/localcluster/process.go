package localcluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const (
	// markerKey is the environment variable, set to the cluster's folder, that every process of a
	// cluster is started with and hands on to its children. It is how Down finds them: a pid file
	// can be stale, or not written yet when the creator crashed.
	markerKey = "LOCKSTEP_CLUSTER"

	// killTimeout bounds the wait for killed processes to be gone.
	killTimeout = 15 * time.Second

	// killPoll is the interval of looking during that wait.
	killPoll = 20 * time.Millisecond
)

// Process is a program that Start started. It is killed by Down.
type Process struct {
	Name string
	// LogFile has its standard output and error.
	LogFile string

	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// Start runs a program of the test, such as the scheduler, as part of the cluster: Down kills it. Output is appended to
// logFile; "" means <name>.log in the cluster's log folder. In its environment KUBECONFIG is that of the administrator.
// ctx does not bound the life of the process.
func (c *Cluster) Start(name, binary string, args []string, logFile string) (*Process, error) {
	if logFile == "" {
		logFile = filepath.Join(c.LogDir(), name+".log")
	}
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), markerKey+"="+c.dir, "KUBECONFIG="+c.Kubeconfig()) // for programs without a flag for it
	// A group of its own, so that Ctrl-C reaches the test, which then calls Down, and not this.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{Name: name, LogFile: logFile, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended: nil while it runs and after exit code 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal; a process that has ended already is no error.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process at once, as a crash would, and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop asks the process to end, and kills it when ctx is over first.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return p.Kill()
	}
}

// readyPoll is how often a process is asked whether it is ready.
const readyPoll = 20 * time.Millisecond

// insecure does not check certificates: processes of tests make theirs when they start.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}

// Fetch returns what a process of a test serves at a URL.
func Fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", url, err)
	}
	response, err := insecure.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking %s: %s", url, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", url, err)
	}
	return text, nil
}

// WaitReady returns when url answers OK, or with an error when the process or ctx ends first.
func (p *Process) WaitReady(ctx context.Context, url string) error {
	for {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		_, err := Fetch(asking, url)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the %s to be ready: %w", p.Name, context.Cause(ctx))
		case <-p.done:
			return fmt.Errorf("waiting for the %s to be ready: it ended: %w", p.Name, p.err)
		case <-time.After(readyPoll):
		}
	}
}

// processesOf returns the ids of all live processes of the cluster in dir.
// Zombies have no environment any more, so a parent that does not reap is no obstacle.
func processesOf(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && belongs(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// belongs reports whether the process was started for the cluster in dir. It returns false for a process that is gone,
// or that is another user's and so cannot be read.
func belongs(pid int, dir string) bool {
	marker := []byte(markerKey + "=" + dir)
	for v := range bytes.SplitSeq(environment(pid), []byte{0}) {
		if bytes.Equal(v, marker) {
			return true
		}
	}
	return false
}

const (
	// execPoll is how often a process is asked for its environment while it has none yet.
	execPoll = time.Millisecond

	// execTimeout bounds that wait: some processes never have an environment.
	execTimeout = 200 * time.Millisecond
)

// environment returns the environment that the process was started with, and nothing when that cannot be read. For a
// moment in execve(2), which is long where processors are busy, a process that has a program has no environment: that
// is waited out.
func environment(pid int) []byte {
	for end := time.Now().Add(execTimeout); ; time.Sleep(execPoll) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || len(env) > 0 || time.Now().After(end) {
			return env
		}
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil {
			return nil // a zombie, or a thread of the kernel
		}
	}
}

// killAll kills the processes of the cluster in dir until none is left: one that was being forked
// during a first look is found by the next. A process that is ending has no environment any more but
// may still have files open, so those killed are waited for by id.
func killAll(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	killed := map[int]string{} // start times by id
	for {
		pids, err := processesOf(dir)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			killed[pid] = startTime(pid)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				return fmt.Errorf("killing process %d: %w", pid, err)
			}
		}
		maps.DeleteFunc(killed, func(pid int, started string) bool {
			now := startTime(pid)
			return now == "" || now != started
		})
		if len(pids) == 0 && len(killed) == 0 {
			return nil
		}
		if err := await.Pause(ctx, killPoll); err != nil {
			return fmt.Errorf("waiting for processes %v to end: %w", slices.Sorted(maps.Keys(killed)), err)
		}
	}
}

// startTime returns what distinguishes two processes with the same id: clock ticks since boot, "" if there is none or
// only a zombie. A first thread that has ended is no zombie while others still end: they have the files and sockets of
// the process open.
func startTime(pid int) string {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return ""
	}
	stat, err := process.Stat()
	if err != nil || stat.State == "Z" && stat.NumThreads <= 1 {
		return ""
	}
	return strconv.FormatUint(stat.Starttime, 10)
}
