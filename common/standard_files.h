/* A program that was started with stdin, stdout or stderr closed (`<&-`, some supervisors): what it opens first would take their numbers, be written to by printf, and libuv would abort
 * when it closes it. */
#ifndef TR_COMMON_STANDARD_FILES_H
#define TR_COMMON_STANDARD_FILES_H

/* Takes the numbers of those that are closed, before anything else is opened: stdin has nothing to read, writes to stdout fail as before, and stderr goes nowhere. */
void standard_files_hold(void);

#endif
