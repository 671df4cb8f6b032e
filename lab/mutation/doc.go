// Command mutation changes one operator or statement of a package after the
// other and reports which changes no test notices.
//
// The command compiles all mutants of a package into one test binary, in which MUTANT
// chooses one by its number. It runs each test once to record the mutants that the test
// reaches, and then runs each mutant with the tests that reach it, quick tests first. A
// mutant is killed if one of them fails or does not end; it has lived if all pass; it is
// not covered if no test reaches it.
//
//	mutation [-tests ./a,./b] [-run regexp] [-at regexp] [-statements] [-sample n] ./package
//
// The package, and the packages of the tests, belong to the working folder's module.
package main
