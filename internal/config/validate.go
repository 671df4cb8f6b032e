package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

type validator interface{ Validate() error }

// validate calls every Validate method in v, outermost first, and returns the
// errors with the path of the section in front. The root's own Validate is for
// rules between sections; any other Validate also covers all sections below it,
// so nothing is reported twice.
func validate(v any) []error {
	var problems []error
	root := reflect.ValueOf(v).Elem()
	if x := validatorOf(root); x != nil {
		problems = appendPrefixed(problems, "", x.Validate())
	}
	return validateFields(problems, root, "")
}

func validateValue(problems []error, v reflect.Value, path string) []error {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return problems
	}
	if x := validatorOf(v); x != nil {
		return appendPrefixed(problems, path, x.Validate())
	}
	return validateFields(problems, v, path)
}

func validateFields(problems []error, v reflect.Value, path string) []error {
	switch v.Kind() {
	case reflect.Pointer:
		problems = validateValue(problems, v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			name, inline, skip := Name(v.Type().Field(i))
			if skip || !v.Field(i).CanInterface() {
				continue
			}
			at := path
			if !inline {
				at = join(path, name)
			}
			problems = validateValue(problems, v.Field(i), at)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			problems = validateValue(problems, v.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			problems = validateValue(problems, it.Value(), join(path, fmt.Sprint(it.Key())))
		}
	}
	return problems
}

// validatorOf returns v or its address as a validator, nil if it is none.
func validatorOf(v reflect.Value) validator {
	if v.CanAddr() {
		v = v.Addr() // its methods are also the value's
	}
	if !v.CanInterface() {
		return nil
	}
	x, _ := v.Interface().(validator)
	return x
}

// appendPrefixed takes joined errors apart and puts path in front of each.
func appendPrefixed(problems []error, path string, err error) []error {
	for _, e := range split(err) {
		switch {
		case path == "":
		case strings.HasPrefix(e.Error(), "["):
			e = fmt.Errorf("%s%w", path, e)
		default:
			e = fmt.Errorf("%s.%w", path, e)
		}
		problems = append(problems, e)
	}
	return problems
}
