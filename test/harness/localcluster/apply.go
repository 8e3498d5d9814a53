package localcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// crdPrefix begins the name by which kubectl knows a CRD.
const crdPrefix = "customresourcedefinition.apiextensions.k8s.io/"

// Apply applies files or folders in this order, as kubectl apply --server-side does, and waits until the CRDs among them
// are served: until then their objects are refused. A folder with a kustomization.yaml is built first.
func (c *Cluster) Apply(ctx context.Context, paths ...string) error {
	var crds []string
	for _, path := range paths {
		flag := "-f"
		if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
			flag = "-k"
		}
		applied, err := c.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--output=name", flag, path)
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(applied) {
			if strings.HasPrefix(name, crdPrefix) {
				crds = append(crds, name)
			}
		}
	}
	if len(crds) == 0 {
		return nil
	}
	// Not --for=condition, which fails on a new CRD without conditions.
	established := `--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True`
	_, err := c.Kubectl(ctx, append([]string{"wait", established, "--timeout=2m"}, crds...)...)
	return err
}

// Kubectl runs kubectl against the cluster and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := c.output(exec.CommandContext(ctx, filepath.Join(c.bin(), "kubectl"), args...))
	if err != nil {
		return "", fmt.Errorf("running kubectl %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// Shell runs command lines at the top of the repository, in which kubectl is that of the cluster, and returns their
// standard output. The first that fails ends them.
func (c *Cluster) Shell(ctx context.Context, line string, variables ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", line)
	cmd.Dir, cmd.Env = filepath.Dir(filepath.Dir(c.bin())), variables
	out, err := c.output(cmd)
	if err != nil {
		return "", fmt.Errorf("running %s: %w\n%s", line, err, strings.TrimSpace(out))
	}
	return out, nil
}

// bin returns the folder of our tools.
func (c *Cluster) bin() string { return filepath.Join(filepath.Dir(filepath.Dir(c.dir)), "bin") }

// output runs a command and returns what it prints, also where it fails; the error has what it wrote to stderr.
func (c *Cluster) output(cmd *exec.Cmd) (string, error) {
	cmd.Env = append(append(c.environ(), "PATH="+c.bin()+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig()), cmd.Env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
