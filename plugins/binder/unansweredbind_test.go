package binder

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

var bindings = schema.GroupResource{Resource: "pods/binding"}

func TestUnanswered(t *testing.T) {
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "a webhook denied the request"}}
	for sentence, c := range map[string]struct {
		err  error
		want bool
	}{
		"a connection that was reset":           {&url.Error{Op: "Post", URL: "https://api", Err: syscall.ECONNRESET}, true},
		"a connection that ended":               {&url.Error{Op: "Post", URL: "https://api", Err: io.ErrUnexpectedEOF}, true},
		"a connection that was refused":         {&url.Error{Op: "Post", URL: "https://api", Err: syscall.ECONNREFUSED}, true},
		"a request that was not done in time":   {apierrors.NewTimeoutError("too long", 1), true},
		"an API server that is overtaxed":       {apierrors.NewServerTimeout(bindings, "create", 1), true},
		"an API server that is away":            {apierrors.NewServiceUnavailable("starting"), true},
		"a proxy that lost the API server":      {apierrors.NewGenericServerResponse(http.StatusBadGateway, "post", bindings, "a", "no upstream", 0, true), true},
		"a proxy's own idea of an error":        {apierrors.NewGenericServerResponse(http.StatusInternalServerError, "post", bindings, "a", "oops", 0, true), true},
		"a conflict: storage wraps all in it":   {apierrors.NewConflict(bindings, "a", errors.New("etcdserver: request timed out")), true},
		"a conflict over the UID":               {apierrors.NewConflict(bindings, "a", storage.NewInvalidObjError("/pods/ns/a", otherUID+": 1, UID in object meta: 2")), false},
		"an error inside the API server":        {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		"a webhook that says no, with code 500": {denied, false},
		"too many requests":                     {apierrors.NewTooManyRequests("later", 1), false},
		"forbidden":                             {apierrors.NewForbidden(bindings, "a", errors.New("no")), false},
		"no such pod":                           {apierrors.NewNotFound(bindings, "a"), false},
		"a status in another error":             {fmt.Errorf("binding: %w", apierrors.NewForbidden(bindings, "a", errors.New("no"))), false},
	} {
		if got := unanswered(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	begin := time.Unix(1000, 0)
	lost, no := error(syscall.ECONNRESET), error(apierrors.NewForbidden(bindings, "a", errors.New("no")))
	pod := func() *st.PodWrapper { return st.MakePod().Namespace("ns").Name("a").UID("1") }
	for sentence, c := range map[string]struct {
		calls []error // one a second
		live  *v1.Pod
		err   error
		after time.Duration // since the first call
		want  outcome
	}{
		"a look that failed says nothing":                     {calls: []error{lost}, err: lost, want: unknown},
		"a pod that is not there is gone":                     {calls: []error{lost}, err: apierrors.NewNotFound(bindings, "a"), want: gone},
		"and so is one of which the name is another's":        {calls: []error{lost}, live: pod().UID("2").Node("here").Obj(), want: gone},
		"and one that is on its way out":                      {calls: []error{lost}, live: pod().Terminating().Obj(), want: gone},
		"a pod on our node is bound":                          {calls: []error{lost}, live: pod().Node("here").Obj(), want: bound},
		"also where the call was refused":                     {calls: []error{no}, live: pod().Node("here").Obj(), want: bound},
		"a pod on another node is bound there":                {calls: []error{lost}, live: pod().Node("there").Obj(), want: elsewhere},
		"what is not stored is sent again":                    {calls: []error{lost}, live: pod().Obj(), want: again},
		"also a long time later":                              {calls: []error{lost}, live: pod().Obj(), after: time.Hour, want: again},
		"what was refused has failed":                         {calls: []error{no}, live: pod().Obj(), want: failed},
		"but not while an earlier call may still be stored":   {calls: []error{lost, no}, live: pod().Obj(), after: landsWithin - time.Second, want: again},
		"until it cannot be":                                  {calls: []error{lost, no}, live: pod().Obj(), after: landsWithin, want: failed},
		"a lost call after a refused one opens it once more":  {calls: []error{no, lost}, live: pod().Obj(), after: time.Second, want: again},
		"and the time runs from the last one that was lost":   {calls: []error{lost, lost, no}, live: pod().Obj(), after: landsWithin, want: again},
		"a refusal does not shorten the time of what is lost": {calls: []error{lost, no, no}, live: pod().Obj(), after: 2 * time.Second, want: again},
	} {
		q := question{uid: "1", node: "here"}
		for i, err := range c.calls {
			q.sent(err, begin.Add(time.Duration(i)*time.Second))
		}
		if got, _ := q.judge(c.live, c.err, begin.Add(c.after)); got != c.want {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}
