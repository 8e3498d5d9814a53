package output

import (
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// none is what kubectl prints where there is nothing.
const none = "<none>"

// OrNone returns a cell: what a pointer points to, or text; <none> for nil and for no
// text.
func OrNone(value any) any {
	v := reflect.ValueOf(value)
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil(), v.Kind() == reflect.String && v.Len() == 0:
		return none
	}
	if text, ok := value.(fmt.Stringer); ok {
		return text.String()
	}
	if v.Kind() == reflect.Pointer {
		return fmt.Sprint(v.Elem().Interface())
	}
	return value
}

// Age returns how long ago something was, as kubectl prints it.
func Age(at metav1.Time, now time.Time) any {
	if at.IsZero() {
		return none
	}
	return duration.HumanDuration(now.Sub(at.Time))
}

// Until returns how long something takes to come; never where it does not.
func Until(at *metav1.Time, now time.Time) any {
	if at == nil {
		return "never"
	}
	return duration.HumanDuration(max(0, at.Sub(now)))
}
