package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestMakeRun does what a newcomer does: make run on a terminal, with all that it can run, a sample, kubectl get
// podgroups, a look at the page, kubectl gang, Ctrl-C. With -kubernetes that version is below it.
func TestMakeRun(t *testing.T) {
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	c := localcluster.Run(t, localcluster.Options{
		Kubernetes: *kubernetes, Nodes: []localcluster.NodePool{{Count: 4}}, Manifests: []string{filepath.Join(root, "manifests", "crds")},
	})
	port, err := localcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("make", "run", "NAME="+c.Name(), "FAIRSHARE=1", "PAGE=1", "DESCHEDULER=1", fmt.Sprintf("ARGS=--secure-port=%d", port))
	cmd.Dir = root
	screen := startOnTerminal(t, cmd)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Apply(ctx, filepath.Join(root, "manifests", "samples", "podgroup-gang.yaml")); err != nil {
		t.Fatal(err)
	}
	for got := ""; !strings.Contains(got, "Running") || !strings.Contains(got, "MinimumBound"); {
		if ctx.Err() != nil {
			t.Fatalf("the PodGroup does not run; kubectl says:\n%s\nthe terminal:\n%s", got, screen.text())
		}
		time.Sleep(100 * time.Millisecond)
		if got, err = c.Kubectl(ctx, "get", "podgroups"); err != nil {
			t.Fatal(err)
		}
	}
	page := regexp.MustCompile(`The page is at (https://\S+); the token for it: (\S+)`).FindStringSubmatch(screen.text())
	if page == nil {
		t.Fatalf("make run does not say where the page is:\n%s", screen.text())
	}
	if err := seePage(ctx, page[1], page[2]); err != nil {
		t.Error(err)
	}
	for command, want := range map[string]string{
		"list": "podgroup-gang", "explain podgroup-gang": "8 of 8 members have a node", "topology": "cpu on all nodes", "queues": "no queues found",
		"whatif -f manifests/samples/annotation-gang.yaml": "annotation-gang",
	} {
		gang := exec.CommandContext(ctx, filepath.Join(root, "bin", "kubectl-gang"), append(strings.Fields(command), "--kubeconfig="+c.Kubeconfig())...)
		gang.Dir = root
		if out, err := gang.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl gang %s: %v, without %q:\n%s", command, err, want, out)
		}
	}
	if config, err := c.Kubectl(ctx, "get", "configmap", "lockstep-scheduler-config", "-n", "kube-system", "-o", "yaml"); err != nil || !strings.Contains(config, "name: FairShare") {
		t.Errorf("the configuration that is published, error %v, has no FairShare:\n%s", err, config)
	}
	for _, name := range []string{"lockstep-scheduler", "lockstep-controller", "lockstep-descheduler"} {
		if len(named(c.Dir(), "bin/"+name)) == 0 {
			t.Errorf("%s does not run", name)
		}
	}
	screen.press(t, 3) // Ctrl-C
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := await.Value(t, "make run to end", ended); err != nil {
		t.Errorf("make run ends with %v after Ctrl-C", err)
	}
	for _, bad := range []string{"command failed", "Error", "error:", "exit status", "Interrupt", "has ended"} {
		if strings.Contains(screen.text(), bad) {
			t.Errorf("make run says %q:\n%s", bad, screen.text())
		}
	}
	if left := named(c.Dir(), "bin/lockstep-"); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// seePage asks for the data of the page, which has the gang of the sample.
func seePage(ctx context.Context, url, token string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/overview", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it has made its certificate
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("looking at the page: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Contains(data, []byte("podgroup-gang"))) {
		err = fmt.Errorf("%s: %s", response.Status, data)
	}
	if err != nil {
		return fmt.Errorf("looking at the page for the gang: %w", err)
	}
	return nil
}

// named lists the commands of processes that have both words in their arguments.
func named(words ...string) (commands []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		command := strings.ReplaceAll(string(data), "\x00", " ")
		all := true
		for _, word := range words {
			all = all && strings.Contains(command, word)
		}
		if all {
			commands = append(commands, command)
		}
	}
	return commands
}

// terminal is a pseudo-terminal, and what was printed on it.
type terminal struct {
	master *os.File

	mu  sync.Mutex
	out bytes.Buffer
}

// startOnTerminal starts a command in a session of its own, on a terminal of its own.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatalf("making a terminal: %v", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("making a terminal: %v", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(cmd.Start(), slave.Close()); err != nil {
		t.Fatalf("starting %s: %v", cmd, err)
	}
	screen := &terminal{master: master}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(screen, master) // until the last process that has it open ends
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it ends what it has started
		select {
		case <-read:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		_ = master.Close()
		<-read
	})
	return screen
}

// Write implements io.Writer.
func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// press types a key.
func (s *terminal) press(t *testing.T, key byte) {
	t.Helper()
	if _, err := s.master.Write([]byte{key}); err != nil {
		t.Fatalf("typing: %v", err)
	}
}
