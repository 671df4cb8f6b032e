package decision

// Class is what the reasons of decisions have in common for an operator. The set is closed;
// docs/routing.md lists the reasons of each.
type Class string

// The classes.
const (
	ClassWarm     Class = "warm"     // sent to where the longest match is
	ClassMoved    Class = "moved"    // sent elsewhere because of load
	ClassCold     Class = "cold"     // sent by load alone: no replica was known to hold anything
	ClassWithheld Class = "withheld" // a trial or the client withheld the hint
	ClassPassed   Class = "passed"   // no hint, and none was due
	ClassFailed   Class = "failed"   // no hint, though one was due
)

// Classes has every Class, in the order above.
var Classes = [...]Class{ClassWarm, ClassMoved, ClassCold, ClassWithheld, ClassPassed, ClassFailed}

// Class returns the class of the record's decision.
func (r *Record) Class() Class {
	if r.Withheld != WithheldNot {
		return ClassWithheld
	}
	return r.Reason.Class()
}
