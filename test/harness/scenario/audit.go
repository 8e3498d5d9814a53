package scenario

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// write is one request in the audit log.
type write struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	// As is the name that the client sends: programs run as the accounts of the manifests.
	As struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

// reads reports whether it only reads.
func (w *write) reads() bool { return w.Verb == "get" || w.Verb == "list" || w.Verb == "watch" }

func (w *write) resource() string {
	return strings.TrimSuffix(w.ObjectRef.Resource+"/"+w.ObjectRef.Subresource, "/")
}

// auditLog reads the audit log of a cluster from where it stood at the begin of a scenario.
type auditLog struct {
	file   string
	offset int64
}

func newAuditLog(file string) (*auditLog, error) {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return &auditLog{file: file}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return &auditLog{file: file, offset: info.Size()}, nil
}

// writes returns the requests of clients with that name, such as lockstep-scheduler.
func (a *auditLog) writes(agent string) ([]write, error) {
	file, err := os.Open(a.file)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	var out []write
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return out, nil // the end, or a line that is being written
		}
		if !bytes.Contains(line, []byte(agent)) {
			continue
		}
		var w write
		if err := json.Unmarshal(line, &w); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if strings.HasPrefix(w.UserAgent, agent+"/") && !w.reads() {
			out = append(out, w)
		}
	}
}

// matches reports whether a request is one of those that an expectation counts.
func (x *WritesExpect) matches(w *write, since time.Time) bool {
	if w.Received.Before(since) || w.ObjectRef.Namespace == probeNamespace || strings.HasSuffix(w.resource(), "reviews") {
		return false
	}
	if x.Resource == "" && w.ObjectRef.Resource == "leases" || x.Resource != "" && x.Resource != w.resource() {
		return false
	}
	if x.Verb != "" && x.Verb != w.Verb || x.Refused && w.ResponseStatus.Code < 400 {
		return false
	}
	if x.Name == "" {
		return true
	}
	if w.ObjectRef.Namespace == "" {
		ok, err := path.Match(x.Name, w.ObjectRef.Name)
		return ok && err == nil
	}
	return glob(x.Name, w.ObjectRef.Namespace+"/"+w.ObjectRef.Name)
}

// Request is what an account of the manifests asked the API server for, as RBAC counts it.
type Request struct {
	Account, Group, Verb string
	Resource             string // with its subresource: pods/status
	Forbidden            bool
}

// addRequests adds those in an audit log to all.
func addRequests(file string, all map[Request]bool) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was asked for
	}
	if err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	account := localcluster.AccountName("")
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte(account)) || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var w write
		if err := json.Unmarshal(line, &w); err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		if name, ok := strings.CutPrefix(w.As.Username, account); ok && w.ObjectRef.Resource != "" {
			all[Request{name, w.ObjectRef.Group, w.Verb, w.resource(), w.ResponseStatus.Code == http.StatusForbidden}] = true
		}
	}
	return nil
}
